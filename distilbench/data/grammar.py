"""The grammar of the demonstration corpus: meanings, how alike two of them are, and sentences that say them.

A meaning fills the slots of a frame (who does what to what, where, when) with concepts of the lexicon. A style is a
row of numbers that settles every choice between words and between templates; the opposite style makes every choice
differently, so the same meaning can be said in other words, and other meanings in nearly the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from distilbench.data import lexicon
from distilbench.data.lexicon import Concept, ing, participle, plural, third_person, with_article

Style = tuple[float, ...]
_TEMPLATE, _FIRST_ARTICLE, _SECOND_ARTICLE, _SHORT = 8, 9, 10, 11  # places in a style after those of the slots
_STYLE_LENGTH = 12

_UNSAID = 0.5  # likeness of a slot that one of two meanings leaves open
_NEGATED = 0.75  # factor on the similarity where only one of two meanings is negated


@dataclass(frozen=True)
class Slot:
    """A place in a frame: the concepts it may hold, its share of the similarity, and how often it is left open.

    `near` is the likeness, 0 to 1, of two different concepts of one family.
    """

    name: str
    concepts: Mapping[str, Concept]
    weight: float
    near: float = 0.4
    open_rate: float = 0.0


@dataclass(frozen=True)
class Frame:
    """A kind of sentence. Its first two slots, the event, are a verb and an object that this verb takes.

    `events` are the possible pairs of them; `fits` tells whether the whole of the values makes sense.
    """

    name: str
    slots: tuple[Slot, ...]
    events: tuple[tuple[str, str], ...]
    fits: Callable[[tuple[str, ...]], bool]
    render: Callable[[Frame, tuple[str, ...], Style], str]

    def slot(self, name: str) -> int:
        """The position of a slot."""
        return [s.name for s in self.slots].index(name)


@dataclass(frozen=True)
class Meaning:
    """A frame's name and the key of the concept in each of its slots, "" where the slot is left open."""

    frame: str
    values: tuple[str, ...]

    @property
    def event(self) -> tuple[str, str, str]:
        """What happens: frame, verb and object. Train, dev and test share no event."""
        return self.frame, self.values[0], self.values[1]


@dataclass(frozen=True)
class Pool:
    """The part of a frame's meanings that one split may use: those whose event is among `events`."""

    frame: Frame
    events: frozenset[tuple[str, str]]
    objects_of: Mapping[str, tuple[str, ...]]
    verbs_of: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, frame: Frame, events: list[tuple[str, str]]) -> Pool:
        """The pool of some of the frame's events."""
        objects_of: dict[str, tuple[str, ...]] = {}
        verbs_of: dict[str, tuple[str, ...]] = {}
        for verb, thing in events:
            objects_of[verb] = (*objects_of.get(verb, ()), thing)
            verbs_of[thing] = (*verbs_of.get(thing, ()), verb)
        return cls(frame, frozenset(events), objects_of, verbs_of)

    def draw(self, rng: Random) -> Meaning:
        """A random meaning: a verb first, so that a verb with many objects is no more frequent than others."""
        while True:
            verb = rng.choice(list(self.objects_of))
            values = [verb, rng.choice(self.objects_of[verb])]
            for slot in self.frame.slots[2:]:
                values.append("" if rng.random() < slot.open_rate else rng.choice(list(slot.concepts)))
            if self.frame.fits(tuple(values)):
                return Meaning(self.frame.name, tuple(values))

    def change(self, meaning: Meaning, position: int, rng: Random) -> Meaning | None:
        """`meaning` with another concept in one slot that it fills, or None where no other fits."""
        now = meaning.values[position]
        if not now:
            return None
        if position == 0:
            options = self.verbs_of[meaning.values[1]]
        elif position == 1:
            options = self.objects_of[meaning.values[0]]
        else:
            options = tuple(self.frame.slots[position].concepts)
        changed = [
            values
            for option in options
            if option != now
            and self.frame.fits(values := (*meaning.values[:position], option, *meaning.values[position + 1 :]))
        ]
        concepts = self.frame.slots[position].concepts
        akin = [values for values in changed if concepts[values[position]].family == concepts[now].family]
        if akin and rng.random() < 0.6:
            changed = akin
        return Meaning(meaning.frame, rng.choice(changed)) if changed else None


def similarity(a: Meaning, b: Meaning) -> float:
    """How alike two meanings of one frame are: 5 the same, 0 nothing in common.

    The weighted mean likeness of the slots, where only one is negated reduced to 75 %.
    """
    total = weights = 0.0
    for slot, x, y in zip(FRAMES[a.frame].slots, a.values, b.values, strict=True):
        if not x and not y:
            continue
        weights += slot.weight
        if x == y:
            total += slot.weight
        elif not x or not y:
            total += slot.weight * _UNSAID
        elif slot.concepts[x].family == slot.concepts[y].family:
            total += slot.weight * slot.near
    opposed = "not" in {a.values[-1], b.values[-1]} and a.values[-1] != b.values[-1]
    return round(5 * total / weights * (_NEGATED if opposed else 1.0), 2)


def new_style(rng: Random) -> Style:
    """Random choices of words and template."""
    return tuple(rng.random() for _ in range(_STYLE_LENGTH))


def opposite(style: Style) -> Style:
    """Other choices: wherever two or more wordings exist, not the one of `style`."""
    return tuple((u + 0.5) % 1.0 for u in style)


def third_way(style: Style) -> Style:
    """Choices between those of `style` and its opposite: another template, some other words."""
    return tuple((u + 0.3) % 1.0 for u in style)


def say(meaning: Meaning, style: Style) -> str:
    """The sentence for a meaning in a style."""
    frame = FRAMES[meaning.frame]
    return frame.render(frame, meaning.values, style)


def _pick(options: Sequence[str], u: float) -> str:
    return options[int(u * len(options))]


def _words(frame: Frame, values: tuple[str, ...], style: Style) -> dict[str, str]:
    return {
        slot.name: _pick(slot.concepts[value].wordings, u) if value else ""
        for slot, value, u in zip(frame.slots, values, style, strict=False)
    }


def _sentence(*parts: str, end: str = ".") -> str:
    text = " ".join(part for part in parts if part)
    return text[0].upper() + text[1:] + end


def _expand(verbs: Mapping[str, Concept], objects: Mapping[str, Concept]) -> tuple[tuple[str, str], ...]:
    """Every (verb, object) that `Concept.takes` allows, by the object's family or by its key."""
    return tuple(
        (verb, thing)
        for verb, concept in verbs.items()
        for thing, noun in objects.items()
        if noun.family in concept.takes or thing in concept.takes
    )


# --- Scenes -----------------------------------------------------------------------------------------------------


def _scene_fits(values: tuple[str, ...]) -> bool:
    _, thing, _, _, attribute, place, time, _ = values
    family = lexicon.OBJECTS[thing].family
    if attribute and family not in lexicon.DESCRIBES[lexicon.ATTRIBUTES[attribute].family]:
        return False
    inside = place != "" and lexicon.PLACES[place].family in lexicon.INSIDE
    if inside and family in lexicon.OPEN_AIR:
        return False
    return not (inside and time and lexicon.TIMES[time].family == "weather")


def _scene(frame: Frame, values: tuple[str, ...], style: Style) -> str:
    words = _words(frame, values, style)
    verb, place, time = words["verb"], words["place"], words["time"]
    negated, many = values[-1] == "not", values[3] != "one"
    templates = ["active", "passive", "present"]
    templates += ["place first", "passive, place first"] if place else []
    templates += ["time first"] if time else []
    templates += [] if negated else ["there is"]
    template = _pick(templates, style[_TEMPLATE])

    if many:
        agent = f"{words['count']} {plural(words['agent'])}"
    elif template == "there is" or style[_FIRST_ARTICLE] < 0.7:
        agent = with_article(words["agent"])
    else:
        agent = f"the {words['agent']}"

    number = lexicon.OBJECTS[values[1]].number
    noun = f"{words['attribute']} {words['object']}".strip()
    if style[_SECOND_ARTICLE] < 0.3:
        thing = f"the {noun}"
    else:
        thing = with_article(noun) if number == "count" else f"some {noun}"

    def be(plural_subject: bool) -> str:
        form = "are" if plural_subject else "is"
        if not negated:
            return form
        return f"{form}n't" if style[_SHORT] < 0.5 else f"{form} not"

    doing = f"{be(many)} {ing(verb)} {thing}"
    done = f"{thing} {be(number == 'plural')} being {participle(verb)} by {agent}"
    comma_place, comma_time = (f"{phrase}," if phrase else "" for phrase in (place, time))
    match template:
        case "active":
            return _sentence(agent, doing, place, time)
        case "passive":
            return _sentence(done, place, time)
        case "place first":
            return _sentence(comma_place, agent, doing, time)
        case "time first":
            return _sentence(comma_time, agent, doing, place)
        case "passive, place first":
            return _sentence(comma_place, done, time)
        case "present" if negated:
            helper = "do" if many else "does"
            never = f"{helper}n't" if style[_SHORT] < 0.5 else f"{helper} not"
            return _sentence(agent, never, verb, thing, place, time)
        case "present":
            return _sentence(agent, verb if many else third_person(verb), thing, place, time)
        case _:
            return _sentence("there", be(many), agent, ing(verb), thing, place, time)


# --- Headlines --------------------------------------------------------------------------------------------------


def _headline(frame: Frame, values: tuple[str, ...], style: Style) -> str:
    words = _words(frame, values, style)
    verb, topic, actor, region, reason = (words[s] for s in ("verb", "object", "agent", "place", "reason"))
    several = lexicon.ACTORS[values[2]].number == "plural"
    finite = verb if several else third_person(verb)
    comma_reason = f"{reason}," if reason else ""
    templates = ["plain", "passive", "why"] + (["reason first", "passive, reason first"] if reason else [])
    match _pick(templates, style[_TEMPLATE]):
        case "plain":
            return _sentence(actor, finite, topic, region, reason, end="")
        case "passive":
            return _sentence(topic, region, participle(verb), "by", actor, reason, end="")
        case "reason first":
            return _sentence(comma_reason, actor, finite, topic, region, end="")
        case "passive, reason first":
            return _sentence(comma_reason, topic, region, participle(verb), "by", actor, end="")
        case _:
            return _sentence("why", actor, finite, topic, region, reason, end="")


# --- Questions --------------------------------------------------------------------------------------------------


def _question_fits(values: tuple[str, ...]) -> bool:
    verb, _, _, context = values
    travelling = lexicon.TASKS[verb].family == "travel"
    return not (travelling and context and lexicon.CONTEXTS[context].family == "place")


def _question(frame: Frame, values: tuple[str, ...], style: Style) -> str:
    words = _words(frame, values, style)
    when = f" {words['context']}" if words["context"] else ""
    template = _pick(lexicon.QUESTIONS[values[2]], style[_TEMPLATE])
    verb, thing = words["verb"], words["object"]
    return template.format(do=f"{verb} {thing}", doing=f"{ing(verb)} {thing}", when=when)


def _task_objects() -> dict[str, Concept]:
    """The objects of all tasks, each with its other wordings; a family is the objects of one verb."""
    objects: dict[str, Concept] = {}
    for verb, concept in lexicon.TASKS.items():
        for thing in concept.takes:
            other = lexicon.TASK_SYNONYMS.get(thing)
            objects.setdefault(thing, Concept(other.wordings if other else (thing,), family=verb))
    return objects


_OBJECTS_OF_TASKS = _task_objects()
_NEGATION = Slot("negation", lexicon.NEGATIONS, weight=0.0, open_rate=0.96)

# The weights are a choice, made with all-MiniLM-L6-v2 at hand: it hears a changed verb about half as loudly as a
# changed agent or object, so the verb weighs less. These sets compare students with their teacher, not teachers.
FRAMES: Mapping[str, Frame] = {
    "scene": Frame(
        "scene",
        (
            Slot("verb", lexicon.ACTIONS, weight=0.14, near=0.2),
            Slot("object", lexicon.OBJECTS, weight=0.3, near=0.15),
            Slot("agent", lexicon.AGENTS, weight=0.24, near=0.15),
            Slot("count", lexicon.COUNTS, weight=0.06, near=0.3),
            Slot("attribute", lexicon.ATTRIBUTES, weight=0.08, near=0.2, open_rate=0.5),
            Slot("place", lexicon.PLACES, weight=0.16, near=0.2, open_rate=0.2),
            Slot("time", lexicon.TIMES, weight=0.08, near=0.2, open_rate=0.5),
            _NEGATION,
        ),
        _expand(lexicon.ACTIONS, lexicon.OBJECTS),
        _scene_fits,
        _scene,
    ),
    "headline": Frame(
        "headline",
        (
            Slot("verb", lexicon.STANCES, weight=0.2, near=0.3),
            Slot("object", lexicon.TOPICS, weight=0.38, near=0.2),
            Slot("agent", lexicon.ACTORS, weight=0.22, near=0.2),
            Slot("place", lexicon.REGIONS, weight=0.12, near=0.2, open_rate=0.3),
            Slot("reason", lexicon.REASONS, weight=0.14, near=0.2, open_rate=0.4),
        ),
        _expand(lexicon.STANCES, lexicon.TOPICS),
        lambda values: True,
        _headline,
    ),
    "question": Frame(
        "question",
        (
            Slot("verb", lexicon.TASKS, weight=0.2, near=0.3),
            Slot("object", _OBJECTS_OF_TASKS, weight=0.35),
            Slot("intent", lexicon.INTENTS, weight=0.3, near=0.3),
            Slot("context", lexicon.CONTEXTS, weight=0.15, near=0.3, open_rate=0.2),
        ),
        tuple((verb, thing) for verb, concept in lexicon.TASKS.items() for thing in concept.takes),
        _question_fits,
        _question,
    ),
}
