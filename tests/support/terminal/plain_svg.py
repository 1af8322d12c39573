"""Pictures for viewers without style sheets, such as librsvg.

`plain` turns the rules of an SVG's style sheet into attributes of its elements. Only rules for dark
themes and phones stay in the style sheet. The plane with the lines is drawn in pixels, because
these viewers scale the width of lines, too.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

NAMESPACE = "http://www.w3.org/2000/svg"
ATTRIBUTES = (  # that a rule may set; other properties are for pages
    "fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "stroke-linecap",
    "text-anchor", "font-size", "font-family", "font-weight", "overflow",
)  # fmt: skip
COLORS = ("fill", "stroke")
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_MEDIA = re.compile(r"@media \(([^)]*)\) \{((?:[^{}]*\{[^{}]*\})*)\s*\}")
_POINT = re.compile(r"([MLHVZ])([^MLHVZ]*)")
_VARIABLE = re.compile(r"var\((--[\w-]+)(?:, ([^)]*))?\)")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule with one selector, such as `.chart text.title`."""

    steps: tuple[tuple[str, frozenset[str]], ...]  # (name or "", classes), outermost first
    values: Mapping[str, str]

    @property
    def specificity(self) -> tuple[int, int]:
        return sum(len(classes) for _, classes in self.steps), sum(bool(n) for n, _ in self.steps)

    def matches(self, path: Sequence[ET.Element]) -> bool:
        *outer, last = self.steps
        if not _is(path[-1], last):
            return False
        above = iter(path[:-1][::-1])
        return all(any(_is(each, step) for each in above) for step in outer[::-1])


def plain(svg: str) -> str:
    """Return an SVG that looks the same in viewers without style sheets, in its light colours."""
    ET.register_namespace("", NAMESPACE)
    root = ET.fromstring(svg)
    _drop_unused(root)
    sheet = next(root.iter(f"{{{NAMESPACE}}}style"))
    text = re.sub(r"/\*.*?\*/", "", sheet.text or "", flags=re.DOTALL)
    media = dict(_MEDIA.findall(text))
    rules = list(_rules(_MEDIA.sub("", text)))
    light, dark = _colors(rules), _colors(_rules(media["prefers-color-scheme: dark"]))
    used = dict[str, str]()  # the dark colour, by class
    for path, values in _styled(root, [rule for rule in rules if rule.steps], light):
        element, classes = path[-1], path[-1].get("class", "").split()
        for name in ATTRIBUTES:
            if name not in values or values[name] == "inherit":
                continue
            variable, value = _resolved(values[name], values)
            element.set(name, value)
            if name in COLORS and variable in dark:
                classes.append(f"{name}-{variable[2:]}")
                used[classes[-1]] = f"{name}: {dark[variable]};"
        if classes:
            element.set("class", " ".join(classes))
    at_night = " ".join(f".{name} {{ {value} }}" for name, value in sorted(used.items()))
    phone = "max-width: 480px"
    sheet.text = (
        f"@media (prefers-color-scheme: dark) {{ {at_night} }}\n"
        f"@media ({phone}) {{{media[phone]}}}\n"
    )
    for path, _ in _styled(root, [], {}):
        if path[-1].get("class") == "plane":
            _draw_in_pixels(path[-1], float(path[-3].get("width", "")))
    return ET.tostring(root, encoding="unicode", short_empty_elements=True) + "\n"


def _drop_unused(root: ET.Element) -> None:
    """Drop symbols that no element uses, so that a new symbol changes no picture."""
    used = {each.get("href") for each in root.iter()}
    for symbols in root.iter(f"{{{NAMESPACE}}}defs"):
        for symbol in list(symbols):
            if f"#{symbol.get('id')}" not in used:
                symbols.remove(symbol)


def _draw_in_pixels(plane: ET.Element, width: float) -> None:
    """Replace the scale of a plane, whose content is upside down, by coordinates in pixels."""
    left, _, across, top = map(float, plane.attrib.pop("viewBox").split())
    del plane.attrib["preserveAspectRatio"]
    height = float(plane.get("height", ""))

    def placed(found: re.Match[str]) -> str:
        command, numbers = found[1], [float(each) for each in found[2].split()]
        x = [f"{(each - left) / across * width:.1f}" for each in numbers]
        y = [f"{(1 - each / top) * height:.1f}" for each in numbers]
        moved = {"H": x, "V": y, "Z": []}.get(command, [*x[:1], *y[1:]])
        return command + " ".join(moved)

    for element in plane.iter():
        element.attrib.pop("transform", None)
        if data := element.get("d"):
            element.set("d", _POINT.sub(placed, data))


def _rules(text: str) -> Iterator[Rule]:
    for selectors, body in _RULE.findall(text):
        pairs = (each.split(":", 1) for each in body.split(";") if ":" in each)
        values = {name.strip(): value.strip() for name, value in pairs}
        if "font" in values:  # "SIZE FAMILY"
            values["font-size"], _, values["font-family"] = values.pop("font").partition(" ")
        for selector in selectors.split(","):
            steps = () if selector.strip() == ":root" else tuple(map(_step, selector.split()))
            yield Rule(steps, values)


def _step(text: str) -> tuple[str, frozenset[str]]:
    name, *classes = text.split(".")
    return name, frozenset(classes)


def _colors(rules: Iterator[Rule] | list[Rule]) -> dict[str, str]:
    return {name: value for rule in rules if not rule.steps for name, value in rule.values.items()}


def _is(element: ET.Element, step: tuple[str, frozenset[str]]) -> bool:
    name, classes = step
    known = element.tag.removeprefix(f"{{{NAMESPACE}}}")
    return name in ("", known) and classes <= set(element.get("class", "").split())


def _styled(
    root: ET.Element, rules: Sequence[Rule], variables: Mapping[str, str]
) -> Iterator[tuple[list[ET.Element], dict[str, str]]]:
    """Yield each element with its ancestors before it, and the values that apply to it."""

    def visit(
        path: list[ET.Element], inherited: Mapping[str, str]
    ) -> Iterator[tuple[list[ET.Element], dict[str, str]]]:
        element = path[-1]
        values = {**inherited, **{n: v for n, v in element.items() if n in ATTRIBUTES}}
        found = [rule for rule in rules if rule.matches(path)]
        for rule in sorted(found, key=lambda rule: rule.specificity):  # stable: later rules win
            values |= rule.values
        below = {name: value for name, value in values.items() if name.startswith("--")}
        children = list(element)
        yield path, values
        for child in children:
            yield from visit([*path, child], below)

    yield from visit([root], variables)


def _resolved(value: str, values: Mapping[str, str]) -> tuple[str, str]:
    """Return the variable that a value names in the end ("" if none), and what it stands for."""
    variable = ""
    while found := _VARIABLE.fullmatch(value):
        variable, value = found[1], values.get(found[1], found[2] or "none")
    return variable, value
