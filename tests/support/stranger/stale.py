"""A layer that clears the output of old commands when that pays."""

from ctxagent.api.extension import Clear, Feature, Layer, LayerState, ViewResult


class Stale(Layer):
    name = "stale"
    nouns = ("stale output", "stale outputs")
    done = ("dropped", "dropped")
    before = "clear"

    def plan(self, state: LayerState) -> list[Clear]:
        found = [each for each in state.view.results() if each.call.name == "Bash"]
        return [Clear(each, f"[stale; Recall #{each.item.seq}]") for each in found[:-1]]

    def need_chance(self, result: ViewResult, age: int) -> float:
        return 0.02 / max(age, 1)

    def price(self, clear: Clear) -> float:
        return 50.0


class StaleFeature(Feature):
    layers = (Stale,)
