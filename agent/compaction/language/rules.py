"""Rules in the person's words: what they ruled, what they lifted, and which rules stand.

A rule is a whole sentence of the person, never a part of it. It stands until they lift it: by words
that permit it or withdraw the rule, by the same rule with another value, or by a rule "from now on"
that differs in one word. In doubt a rule stands, and a sentence counts as one. Common languages are
read by their plainest forms; what no form recognises must be found by other means.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from .evidence import FORBIDS, fact_at, sentences

MAX_CACHED_MESSAGES = 4_096  # each summary reads all of them again
MIN_SHARED_WORDS = 2  # of words that lift a rule, unless they are all of its words

_FORMS = {
    "en": r"\bhands? off\b|\boff[- ]limits\b|\bread[- ]only\b|\bfrom now on\b|\bno longer use\b"
    r"|\bleave\b.{1,80}\b(?:alone|untouched|unchanged|as (?:it|they)\b)"
    r"|\b(?:may|shall|need) not be \w+|\byou (?:may|can) ?not\b|\bshould(?:n['’]t| not)\b"
    r"|(?<!\bI )(?<!\bwe )(?<!\bit )\bcannot\b|\bwithout (?:my|our|asking)\b|\buntil I\b"
    r"|^(?:please )?(?:keep (?!going|on\b)|avoid|prefer|make sure|ensure|stick to|refrain|only)\b"
    r"|^no (?!idea|problem|worries|need|longer|matter|one|funciona|es|hay|está|se|me|lo|la)\w"
    r"|\bonly (?:touch|edit|modify|change|write|use|work)\b"
    r"|\b(?:(?:is|are) required|mandatory|prohibited|banned|taboo|no-go)\b",
    "de": r"\b(?:niemals|nie|(?<!noch )immer(?! noch)|stets|verboten|tabu|untersagt"
    r"|müssen|muss(?:t|en)?|ab (?:jetzt|sofort)|auf keinen Fall|unter keinen Umständen|Finger weg"
    r"|ausschließlich|nur noch|bitte nur|in Ruhe lassen)\b|\bd[aü]rf\w* .*\b(?:nicht|kein\w*|nur)\b"
    r"|\bsoll(?:st|en|t)? .*\b(?:nicht|kein\w*|nur)\b|\bbitte (?:\S+ ){0,6}?(?:nicht|kein\w*)\b"
    r"|\b(?:nicht|kein\w*) (?:\S+ ){0,5}?\w+(?:en|ern|eln)\W*$|^keine?n? \w"
    r"|^(?!(?:das|dies|es|ich|wir|er|sie|der|die|da|hier|warum|wieso)\b)\w+ .*\bnicht\b.{0,12}$",
    "es": r"\b(?:nunca|jamás|siempre|prohibid[oa]s?|no se (?:debe|puede)|hay que|de ahora en"
    r" adelante|tienes? que|deb(?:e|es|en|éis)|evita|solamente|únicamente|s[oó]lo)\b"
    r"|(?:^|[,;:¡] ?|\by |\bpor favor )no (?:l[oae]s? )?\w+(?:es|as|éis|áis)\b"
    r"|(?:^|[,;:¡] ?|\by |\bpor favor )no (?:toque|use|modifique|cambie|borre|elimine|edite|haga"
    r"|ejecute|suba|añada|agregue|escriba|llame|instale|renombre|mueva|publique)n?\b",
    "fr": r"\b(?:jamais|toujours|interdit\w*|défense de|il (?:ne )?faut|dois|doit|doivent|devez"
    r"|uniquement|seulement|désormais|évite[rz]?)\b|(?:^|[,;:] |\bet |\bsurtout )n(?:e |['’])",
    "it": r"\b(?:mai|sempre|vietat[oaie]|dev(?:e|i|ono|ete)|soltanto|solo|evita(?:re)?|d['’]ora in"
    r" poi)\b|\bnon (?:l[oaie] )?\w+(?:are|ere|ire|ate|ete|ite)\b",
    "pt": r"\b(?:sempre|proibid[oa]s?|apenas|somente|evite|dev(?:e|em)|a partir de agora)\b"
    r"|\bnão (?:toque|mexa|use|mude|altere|modifique|apague|exclua|edite|remova|faça|execute|crie"
    r"|instale|renomeie|envie|publique|adicione|delete)\w*",
    "nl": r"\b(?:nooit|altijd|verboden|moet(?:en)?|mag (?:\S+ ){0,4}niet|blijf (?:\S+ ){0,3}af"
    r"|vanaf nu|alleen)\b|\bniet (?:\S+ ){0,3}?\w+en\W*$",
    "scandinavian": r"\b(?:aldrig|aldri|alltid|altid|förbjud\w*|forbud\w*|måste|ska inte|skal ikke"
    r"|rör inte|rør ikke|älä|aina|ei saa)\b",
    "pl": r"\b(?:nigdy|zawsze|nie wolno|zabronion[eay]|musisz|trzeba|tylko)\b"
    r"|\bnie \w+(?:aj|uj|ij|yj|ać|ować)(?:cie)?\b",
    "tr": r"\b(?:asla|kesinlikle|daima|her zaman|yasak|sadece|dokunma\w*|değiştirme\w*"
    r"|kullanma\w*|silme\w*)\b",
    "ru": r"\b(?:никогда|всегда|нельзя|запрещено|обязательно|долж(?:ен|на|но|ны)|только|отныне"
    r"|ніколи|завжди|заборонено)\b|\bне \w+(?:й|йте|ь|ьте|и|ите|ть)\b",
    "zh": r"不要|[请請]勿|禁止|不得|不[许許准]|不能(?!运行|工作|启动|正常|编译|打开|用)|[绝絕]不"
    r"|永[远遠]不|切勿|别(?:动|改|用|碰|删|把|再|去)|別(?:動|改|用|碰|刪|把|再|去)|必[须須]|[务務]必"
    r"|始[终終]|一律|[总總]是|只能|只[许許准]|从现在起|從現在起",
    "ja": r"しないで|ないでください|禁止|決して|絶対|必ず|常に|(?:て|で)は(?:いけ|なら)|触らない"
    r"|使わない|変更しない|なければなら|今後は",
    "ko": r"지\s?(?:마|말)|금지|절대|반드시|항상|해야|안\s?(?:됩니다|돼|된다)",
    "other": r"(?:^|\s)لا ت\w+|أبد|دائم|ممنوع|يجب|אל ת|אסור|תמיד|חובה|मत\b|कभी नहीं|हमेशा"
    r"|\b(?:đừng|không được|luôn|cấm|bắt buộc|jangan|selalu|dilarang|harus)\b",
}
_RULES = (FORBIDS, re.compile("|".join(_FORMS.values()), re.IGNORECASE))

_NOUN = (
    r"(?:rules?|restrictions?|constraints?|ban|bans|requirements?|instructions?|prohibitions?"
    r"|what I said|Regel|Verbot|Vorgabe|regla|restricción|prohibición|règle|interdiction|规则|限制)"
)
_LIFTS = re.compile(
    r"\b(?:you (?:may|can)|feel free to|go ahead and|you(?: a|['’])re (?:now )?(?:allowed|free) to"
    r"|(?:is|it['’]s|are) (?:now )?(?:fine|ok|okay|all right|allowed|permitted)(?: now| again)?"
    r"(?: for you)?(?: to)?|(?:no longer|do not|don['’]t|does not|doesn['’]t) (?:need|have) to"
    r"|no need to|need not|(?:du|ihr) (?:darfst|dürft|kannst|könnt)|(?:darfst|kannst) du"
    r"|(?:ist|sind) (?:jetzt |wieder )?(?:erlaubt|ok|in Ordnung)|(?:musst|brauchst|müsst) (?:du )?"
    r"|ya puedes|ahora puedes|puedes|ya no hace falta|tu peux|vous pouvez|puoi|pode agora"
    r"|теперь можно|можно)\b|现在可以|可以|不用再|不必再|もう(?:いい|構わない)|てもいい"
    rf"|\b(?:forget|ignore|drop|lift|cancel|scrap|withdraw|revoke|take back|never mind|vergiss"
    rf"|olvida|oublie|取消)\b(?=.*{_NOUN})|{_NOUN}(?=.*\b(?:no longer|gone|lifted|void|over"
    r"|nicht mehr|aufgehoben|ya no)\b)",
    re.IGNORECASE,
)
_NO_LIFT = re.compile(
    r"\b(?:not|never|if|when|once|unless|until|after|wenn|falls|nie|si|quand|если|nunca)\b"
    r"|n['’]t\b|不能|不要|如果|\?\W*$",
    re.IGNORECASE,
)
_CHANGES = re.compile(
    r"\bfrom now on\b|\binstead\b(?! of)|\bab (?:jetzt|sofort)\b|\bde ahora en adelante\b"
    r"|\bdésormais\b|\bd['’]ora in poi\b|\ba partir de agora\b|\bотныне\b|从现在起|今後は",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[,;:—–()，；]|\b(?:because|since|but|weil|denn|porque|aber)\b")
_WAITS = re.compile(r"\s*\b(?:until|bis|hasta que)\b.*", re.IGNORECASE | re.DOTALL)
_ASKS = re.compile(r"^(?:ok(?:ay)?|yes|now|and|then|please|go ahead and|\W)+", re.IGNORECASE)
_FORBIDDING = re.compile(
    r"\b(?:not|never|no|hands off|avoid|nicht|nie|niemals|kein\w*|nunca|jamás|jamais|ne|pas|mai|non"
    r"|não|не|никогда)\b|n['’]t\b|不|勿|禁|别",
    re.IGNORECASE,
)
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff][\w./@+-]*")
_VALUE = re.compile(r"`[^`]+`|\"[^\"]+\"|\S*\d\S*|\S+/\S*|\S+\.\w{1,5}")
_TOKEN = re.compile(r"`[^`]*`\S*|\"[^\"]*\"\S*|\S+")
_RELATION = re.compile(
    r"(?:\b(?:is|are|was|at|to|has|have|than|most|least|uses|takes|returns|equals|port|version"
    r"|in|on)|[=:→])(?: (?:now|at|on|in|port|about|exactly|version|the|a|read from))?\s*$",
    re.IGNORECASE,
)
_FILLING = """
a an the this that these those of in on to at for by with and or but so then it its is are be been
was were now again also just please ok okay yes you your i my me we our may can could will would do
does any anything all every some there here from as too not no only ever never always must need
have has had longer whole forget ignore drop lift cancel about hold holds apply applies valid rule
rules restriction constraint ban free feel allowed fine instead more anymore don doesn t s said
what below under
der die das den dem ein eine einen auf im von zu und oder jetzt nun wieder bitte du ihr darfst
dürft kannst könnt nicht mehr musst brauchst nie niemals immer nur ab sofort regel vergiss
el la los las un una de en y o ahora ya puedes por favor nunca siempre que olvida
le les du des et tu peux vous pouvez ne pas jamais toujours il lo gli di e puoi non mai
请 請 的 了 吗 在 是 把 我 你 不 要 勿 可 以 现 再 用 永 远 禁 止 取 消 规 则
не никогда теперь можно и в на
"""
_FILLERS = frozenset(_FILLING.split())
_CHANGING = re.compile(
    r"(?:touch|modif|edit|chang|alter|updat|rewrit|write|änder|anfass|bearbeit|fass$|tocar|toqu|toques"
    r"|cambi|toucher|modific|трога|меня|измен)\w*|[修改动碰動]",
    re.IGNORECASE,
)
_UNTOUCHED = re.compile(
    r"hands off|off[- ]limits|read[- ]only|\balone\b|untouched|Finger weg", re.I
)
_STEM_CHARS = 5  # by which "commits" is known to be about "commit"


@dataclass(frozen=True, slots=True)
class PersonRule:
    """A sentence of the person's that rules, with the seq of the message that has it."""

    ref: int
    text: str


@lru_cache(MAX_CACHED_MESSAGES)
def rules_in(text: str) -> tuple[str, ...]:
    """Return the sentences of a person's text that rule something, whole and verbatim."""
    return tuple(
        sentence
        for sentence in sentences(text)
        if not sentence.endswith(("?", ":", "？", "："))
        and any(pattern.search(sentence) for pattern in _RULES)
        and not _lifting_clauses(sentence)
    )


def standing_rules(
    words: Sequence[tuple[int, str]],
    named: Iterable[PersonRule] = (),
    lifted: Iterable[PersonRule] = (),
) -> list[PersonRule]:
    """Return the rules that stand after all the person's `words`, oldest first. `named` are rules
    that no form here recognises, `lifted` those that are known to be lifted."""
    more: dict[int, list[str]] = {}
    for rule in named:
        more.setdefault(rule.ref, []).append(rule.text)
    gone = {(rule.ref, _key(rule.text)) for rule in lifted}
    standing: dict[str, PersonRule] = {}
    for ref, text in words:
        if standing and (lifting := _lifting(text)):
            standing = {k: r for k, r in standing.items() if not _is_lifted(r.text, lifting)}
        for sentence in dict.fromkeys((*rules_in(text), *more.get(ref, ()))):
            standing.pop(_key(sentence), None)
            standing = {k: r for k, r in standing.items() if not _replaces(sentence, r.text)}
            if (ref, _key(sentence)) not in gone:
                standing[_key(sentence)] = PersonRule(ref, sentence)
    return list(standing.values())


def telling_part(rule: str) -> str:
    """Return the part of a rule that says what it rules, as short as any fact."""
    found = next((match for pattern in _RULES if (match := pattern.search(rule))), None)
    return fact_at(rule, found.start() if found else 0)


def sentence_with(text: str, quoted: str) -> str:
    """Return the whole sentence of a text that has the quoted words, "" if none has."""
    key = _key(quoted)
    return next((each for each in sentences(text) if key and key in _key(each)), "")


def may_lift(sentence: str, rule: str) -> bool:
    """Return whether a sentence of the person's that is said to lift a rule can do so: it permits
    or changes something that the rule is about, under no condition."""
    signs = _LIFTS.search(sentence) or _CHANGES.search(sentence)
    return bool(signs and not _NO_LIFT.search(sentence) and subject(sentence) & subject(rule))


def changes_value(later: str, earlier: str) -> bool:
    """Return whether two statements are the same but for one value that they give to the same
    thing: a number, a path or a name in quotes."""
    (new, new_forms), (old, old_forms) = _tokens(later), _tokens(earlier)
    if len(new) != len(old):
        return False
    different = (n for n, form in enumerate(new_forms) if form != old_forms[n])
    place = next(different, None)
    if place is None or next(different, None) is not None:
        return False
    values = [text[place].strip(",;()") for text in (new, old)]
    before = " ".join(new[:place])
    numbers = all(any(map(str.isdigit, value)) and "/" not in value for value in values)
    named = len(subject(before)) > 1 and all(map(_VALUE.fullmatch, values))
    return (numbers or named) and _RELATION.search(before) is not None


@lru_cache(MAX_CACHED_MESSAGES)
def subject(text: str) -> frozenset[str]:
    """Return the words of a statement that tell what it is about, in one form for each."""
    words = {word.lower().strip("./-@+") for word in _WORD.findall(text)}
    found = {
        "change" if _CHANGING.fullmatch(word) else _stem(word) for word in words - _FILLERS if word
    }
    return frozenset(found | {"change"} if _UNTOUCHED.search(text) else found)


def _stem(word: str) -> str:
    """Return the stem of a plain word; a path, a number or an identifier is left whole."""
    return (word[:_STEM_CHARS].rstrip("s") or word) if word.isalpha() else word


@lru_cache(MAX_CACHED_MESSAGES)
def _tokens(text: str) -> tuple[Sequence[str], Sequence[str]]:
    """Return the tokens of a statement, and the form of each by which it is compared."""
    tokens = _TOKEN.findall(text.rstrip(" ."))
    return tokens, [token.casefold().strip(",;()") for token in tokens]


@lru_cache(MAX_CACHED_MESSAGES)
def _lifting(text: str) -> Mapping[str, tuple[str, ...]]:
    """Return the sentences of a text, each with its clauses that lift something."""
    return {sentence: _lifting_clauses(sentence) for sentence in sentences(text)}


def _lifting_clauses(sentence: str) -> tuple[str, ...]:
    """Return the clauses of a sentence that permit something or withdraw a rule."""
    found = []
    for clause in _CLAUSE.split(sentence):
        rest = _LIFTS.sub(" ", clause)
        if rest != clause and not _NO_LIFT.search(f"{rest} {sentence[-1:]}"):
            found.append(rest)
    conditional = re.search(r"\b(?:if|when|once|unless|until|after|wenn|falls)\b", sentence, re.I)
    return () if conditional else tuple(found)


def _is_lifted(rule: str, lifting: Mapping[str, tuple[str, ...]]) -> bool:
    about = subject(rule)
    for sentence, clauses in lifting.items():
        for clause in clauses:
            words = subject(clause)
            named = re.search(_NOUN, sentence, re.I) is not None
            enough = named or len(words) >= MIN_SHARED_WORDS or words == about
            if words and words <= about and enough:
                return True
        asked = _ASKS.sub("", sentence).split()[:1]
        core = _WAITS.sub("", rule)
        if core != rule and asked and subject(asked[0]) & subject(core):
            return True
    return False


def _replaces(later: str, earlier: str) -> bool:
    """Return whether a later rule takes the place of an earlier one."""
    if changes_value(later, earlier):
        return True
    if not _CHANGES.search(later) or _FORBIDDING.search(later) or _FORBIDDING.search(earlier):
        return False
    new, old = subject(_CHANGES.sub("", later)), subject(earlier)
    return len(new & old) >= MIN_SHARED_WORDS and len(new - old) <= 1 and len(old - new) <= 1


def _key(text: str) -> str:
    return " ".join(text.casefold().split()).strip(" .!。！`*_\"'“”")
