"""The words of the demonstration corpus, and the few rules of English spelling that its grammar needs.

A table lists one family per line: `family: entry, entry`. An entry is a concept: its wordings, separated by `|`, mean
the same, and the first one is its key. `~` marks a noun without a plural ("~bread"), `+` one that is always plural.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Concept:
    """One meaning: its `wordings`, its `family` (concepts of one family are akin), and its grammatical `number`.

    `number` is "count", "mass" or "plural"; `takes` names the families (or keys) of the objects that a verb may have.
    """

    wordings: tuple[str, ...]
    family: str
    number: str = "count"
    takes: tuple[str, ...] = ()


def _table(text: str) -> dict[str, Concept]:
    concepts: dict[str, Concept] = {}
    for line in text.strip().splitlines():
        family, entries = line.split(":")
        for entry in entries.split(","):
            marked = entry.strip()
            number = {"~": "mass", "+": "plural"}.get(marked[0], "count")
            wordings = tuple(marked.lstrip("~+").split("|"))
            concepts[wordings[0]] = Concept(wordings, family.strip(), number)
    return concepts


def _verbs(text: str) -> dict[str, Concept]:
    """Lines `family: wordings > object, object`."""
    concepts: dict[str, Concept] = {}
    for line in text.strip().splitlines():
        family, rest = line.split(":")
        words, objects = rest.split(">")
        wordings = tuple(words.strip().split("|"))
        concepts[wordings[0]] = Concept(wordings, family.strip(), takes=tuple(o.strip() for o in objects.split(",")))
    return concepts


# --- Scenes: somebody does something somewhere ------------------------------------------------------------------

AGENTS = _table("""
health: veterinarian|animal doctor, surgeon, midwife, optician
school: professor, scientist|researcher, schoolgirl
craft: welder, roofer|roof worker, miner, shoemaker|cobbler
land: beekeeper, lumberjack|logger, cowboy
arts: clown, magician|conjurer, violinist, photographer, ballerina
order: priest, king|monarch, guard, spy|secret agent
travel: astronaut|cosmonaut, bus driver, mountaineer, swimmer
sport: boxer, footballer|soccer player, goalkeeper, skier
child: boy|lad, girl, teenager|adolescent
adult: man|gentleman, woman|lady, grandmother|granny, grandfather|grandpa, bride
health: doctor|physician, nurse, dentist
school: teacher|schoolteacher, student|pupil, librarian
craft: mechanic, carpenter|woodworker, tailor, plumber, blacksmith, electrician
land: farmer, gardener, shepherd, fisherman, hunter
food: cook|chef, baker, waiter, butcher
arts: musician, painter|artist, actor|stage performer, dancer
order: police officer|cop, soldier, firefighter, judge
trade: shopkeeper|shop owner, lawyer|attorney, postman|mail carrier
travel: tourist|sightseer, sailor|seaman, pilot, cyclist
crime: thief|burglar, prisoner|convict
""")

COUNTS = _table("""
number: one, two|a couple of, several|a number of
""")

OBJECTS = _table("""
vehicle: sledge|sleigh, canoe, ambulance, taxi|cab, scooter, helicopter, caravan
instrument: harp, trombone, clarinet, banjo, saxophone
furniture: cradle, bookcase, bench, stool, chandelier, fireplace
machine: microwave, vacuum cleaner, sewing machine, typewriter, telescope, robot, lawnmower, coffee machine
clothes: uniform, raincoat, wedding veil, apron, belt, tie|necktie, +pyjamas, +boots, +socks, +sunglasses
dish: burger|hamburger, salad, doughnut, steak, lasagne, ~porridge, ~chocolate, ~ice cream, ~butter
produce: banana, mushroom, pineapple, cucumber, chilli pepper, coconut
text: dictionary, cookbook, postcard, newsletter, screenplay
animal: camel, elephant, turtle|tortoise, snake, monkey, penguin, hamster, owl, pony, dolphin
building: windmill, greenhouse|glasshouse, chimney, castle, lighthouse, tent, staircase, well
artwork: mural, mosaic, cartoon, tapestry
tool: wrench|spanner, screwdriver, paintbrush, broom, net, torch|flashlight, wheel
container: barrel, cup|mug, teapot, envelope, backpack|rucksack
toy: puppet, chessboard, teddy bear, skateboard, frisbee
plant: cactus, ivy hedge, orchid, palm tree, fern
valuable: medal, diamond, trophy, bracelet, bank card|credit card
vehicle: car|automobile, bicycle|bike, lorry|truck, motorbike|motorcycle, van, tractor, wheelbarrow, boat
instrument: guitar, violin|fiddle, piano, drum, trumpet, flute, cello, accordion|squeezebox
furniture: table, chair, sofa|couch, bed, wardrobe, shelf, lamp, mirror, carpet|rug, desk
machine: television|TV set, radio, computer|PC, printer, fridge|refrigerator, clock, camera, phone|telephone, fan
clothes: coat|overcoat, shirt, jacket, hat, scarf, dress|gown, sweater|jumper|pullover, +trousers|pants, +gloves
dish: cake, pie, sandwich, pizza, omelette, sausage, pancake, ~soup|broth, ~bread, ~rice, ~cheese
produce: apple, orange, carrot, onion, tomato, pumpkin, lemon, cabbage, pear, melon, potato
text: book, newspaper|daily paper, letter, poem, map, magazine, diary|journal, contract
animal: dog, cat, horse, cow, goat, rabbit|bunny, pig|hog, duck, chicken|hen, parrot, donkey
building: house, wall, bridge, barn, fence, tower, hut|cabin, gate
artwork: painting, photograph|photo, poster, portrait, statue|sculpture
tool: hammer, ladder, shovel|spade, bucket|pail, knife, saw, rope, axe|hatchet
container: box|crate, suitcase|travel case, basket, bag|sack, bottle, parcel|package, vase, jar
toy: ball, doll, kite, puzzle|jigsaw, balloon
plant: tree, rose, bush|shrub, sunflower, tulip, vine
valuable: ring, necklace, watch|wristwatch, wallet|billfold, coin, key, passport
""")

ATTRIBUTES = _table("""
size: big|large, small|little
age: old, new|brand-new
price: expensive|costly|pricey, cheap|inexpensive
colour: red, blue, green, yellow, black, white
looks: beautiful|lovely, ugly|unattractive
taste: delicious|tasty
temper: hungry, sleepy|drowsy
""")

# The families of objects that an attribute of a family may describe.
DESCRIBES: Mapping[str, tuple[str, ...]] = {
    "size": ("vehicle", "furniture", "machine", "building", "artwork", "tool", "container", "toy", "plant", "animal"),
    "age": ("vehicle", "instrument", "furniture", "machine", "clothes", "building", "tool", "container", "text"),
    "price": ("vehicle", "instrument", "furniture", "machine", "clothes", "artwork", "valuable", "dish"),
    "colour": ("vehicle", "furniture", "clothes", "container", "toy", "tool"),
    "looks": ("furniture", "clothes", "building", "artwork", "plant", "valuable", "animal"),
    "taste": ("dish",),
    "temper": ("animal",),
}

ACTIONS = _verbs("""
upkeep: repair|fix|mend > vehicle, machine, furniture, building, instrument, ladder, kite
upkeep: clean|scrub > vehicle, furniture, container, tool, statue
upkeep: inspect|examine|check > vehicle, machine, building, container, passport, contract, plant, animal
upkeep: paint > building, wardrobe, chair, shelf, boat, bicycle, table
making: build|construct|put together > furniture, building, boat, kite, canoe, sledge, robot
making: draw|sketch > animal, plant, building, vehicle, produce, map
making: photograph > animal, plant, building, vehicle, artwork
making: sew|stitch > clothes, bag, doll, puppet, tent
making: knit > hat, scarf, sweater, gloves
making: write|compose > letter, poem, diary, book, contract, postcard, screenplay, dictionary, cookbook
making: copy|duplicate > letter, poem, map, painting, portrait, key
trade: buy|purchase > vehicle, instrument, furniture, machine, clothes, text, animal, toy, plant, valuable, artwork
trade: sell > vehicle, instrument, furniture, machine, clothes, text, animal, toy, plant, valuable, artwork, produce
trade: deliver|bring > furniture, machine, parcel, letter, newspaper, dish, container, produce, plant
trade: borrow > vehicle, instrument, tool, text, suitcase
trade: steal|snatch > vehicle, machine, valuable, artwork, animal, produce, suitcase, bag
kitchen: cook|prepare > dish, chicken, potato, carrot, pumpkin
kitchen: slice|cut up > produce, bread, cheese, cake, pie, pizza, sausage
kitchen: eat|consume > dish, produce
kitchen: order|ask for > dish, chicken
kitchen: peel > apple, orange, carrot, onion, lemon, potato
motion: carry > container, tool, furniture, instrument, animal, produce, toy, artwork
motion: push|shove > vehicle, furniture, container, animal
motion: pull|drag > vehicle, furniture, container, animal, rope
motion: lift|pick up > container, tool, furniture, instrument, toy, animal
motion: throw|toss|hurl > ball, kite, doll, produce, bottle, hammer, axe, hat, coin, key, vase
motion: drive|steer > car, lorry, motorbike, van, tractor, boat, ambulance, taxi, scooter
motion: kick > ball, bucket, box, suitcase, gate, fence, drum
motion: climb > tree, ladder, wall, fence, tower, gate, palm tree, staircase, chimney
harm: break|smash > furniture, machine, instrument, toy, vase, bottle, jar, statue, clock
harm: burn > text, furniture, photograph, poster, box, coat, hut
harm: knock down|demolish|tear down > building, statue
harm: tear up|rip up > text, photograph, poster
sight: look for|search for > valuable, animal, tool, text, container, clothes, toy
sight: admire|gaze at > artwork, building, plant, vehicle, animal, valuable, dress
sight: hide|conceal > valuable, container, text, toy, artwork, tool
sight: read|look through > text, poster
sight: guard|watch over > building, valuable, animal, artwork, vehicle
care: feed > animal
care: stroke|pet > animal
care: wash|bathe > dog, cat, horse, cow, pig, produce, clothes, car, van, bottle
care: plant > plant, cabbage, onion, potato, pumpkin
care: water > plant, cabbage, tomato, pumpkin
care: pick|gather > produce, rose, tulip, sunflower
care: cut down|chop down > tree, bush, vine, sunflower
use: play > instrument
use: wear > clothes, ring, necklace, watch
use: fold > clothes, newspaper, map, letter, chair, ladder
use: sharpen > knife, saw, axe
use: fill > container, bucket, wheelbarrow
use: empty > container, bucket, wheelbarrow, fridge, wardrobe
use: ride > horse, donkey, bicycle, motorbike, camel, elephant, pony, scooter, skateboard
use: wrap|pack > parcel, sandwich, clothes, vase, artwork, toy, necklace, lamp
use: weigh > animal, produce, parcel, suitcase, cheese, coin, cake
""")

PLACES = _table("""
public: in the theatre, in the prison|in jail, in the swimming pool, at the bank, in the cathedral
country: in the jungle|in the rainforest, in the vineyard, on the glacier, in the cave
town: at the zoo, in the cemetery|in the graveyard, at the petrol station|at the gas station, on the roof|on the rooftop
indoors: in the kitchen, in the bedroom, in the basement|in the cellar, in the living room|in the lounge
public: in the library, at the museum, in the hospital|at the clinic, at school|in the classroom, at the airport
public: at the railway station|at the train station, in the hotel, at the office|in the workplace
town: in the street|on the road, at the market, in the city centre|downtown, in front of the church|outside the church
town: in the car park|in the parking lot, next to the stadium|beside the stadium
country: in the forest|in the woods, on the farm, in the mountains|up in the hills, in the desert
country: in the garden|in the back yard, in the park, in the village
waterside: on the beach|on the sand, by the river|on the riverbank, at the harbour|at the port, near the lake
""")

INSIDE = ("indoors", "public")  # families of places with a roof
OPEN_AIR = ("vehicle", "building", "plant", "animal")  # families of objects that do not belong under one

TIMES = _table("""
hour: at night|after dark, at dawn|at sunrise, in the morning|before noon, at midday|at noon, in the evening|at dusk
season: in winter|during the coldest months, in summer, in spring, in autumn|in the fall
weather: in the rain|in wet weather, in the snow, during a storm|in stormy weather, in the sunshine|in sunny weather
occasion: during the holidays|on vacation, at the weekend|on Saturday, before a wedding, during a strike
""")

NEGATIONS = _table("""
polarity: not
""")

# --- Headlines: an institution takes a position -----------------------------------------------------------------

ACTORS = _table("""
state: president, +diplomats, tax office|revenue service
people: +fishermen, +pensioners|retirees, +parents, +scientists|researchers, +bus drivers
industry: brewery|beer maker, clothing chain|fashion retailer, toy maker, chocolate factory
culture: zoo, television channel|TV network, symphony orchestra, Olympic committee
state: +ministers|cabinet members, parliament, city council|town hall, +judges, +lawmakers
transport: airline|air carrier, railway operator|train company, airport, shipping company|ferry operator
money: bank|lender, insurance company|insurer, supermarket chain|grocery giant, pension fund
industry: car maker|auto manufacturer, power company|electricity supplier, mining group, drug maker
people: +farmers, +teachers, +nurses, +residents|locals, +students, +trade unions|labour unions, +doctors
culture: football club|soccer team, film studio|movie company, museum, university, newspaper, opera house
science: space agency, weather service, research institute|research centre
""")

STANCES = _verbs("""
support: approve|back > project, rule, service
support: praise|welcome > project, rule, service
support: fund|pay for > project, service
support: propose|suggest > project, rule, service, level
oppose: reject|turn down > project, rule
oppose: criticise|condemn > project, rule, service
oppose: cancel|scrap > project, service
oppose: fear|dread > project, rule
change: delay|postpone > project, rule, level
change: expand|extend > service, project
change: raise|increase > level
change: cut|reduce > level
change: freeze > level
inform: announce|unveil > project, service, rule
inform: explain > project, rule, level
inform: review|reassess > project, rule, service, level
inform: debate|discuss > project, rule, service, level
""")

TOPICS = _table("""
project: underwater cable, robot factory, oil refinery, wildlife reserve, chess school, pop festival, cricket tour
project: royal palace, rail bridge, weather satellite, language museum, cycle lane|bike lane, beach clean-up
project: prison wing
rule: whale hunt, inheritance law, voting age, patent reform, animal testing, tipping ban|ban on tips, visa system
service: eye tests, dental care, language lessons, music lessons, wheelchair taxis, food banks, jury training
service: bird counts
level: milk quotas, carbon emissions|greenhouse gas output, bus speeds, lottery prizes, electricity prices, noise limits
project: new tram line|new streetcar route, new airport runway, new nuclear plant, wind farm|wind turbines, coal mine
project: football stadium|soccer arena, river dam, moon mission|lunar flight, flood barrier, giant solar park
project: gas pipeline
project: children's hospital, motorway tunnel, shopping centre|shopping mall, art gallery, data centre, housing estate
rule: sugar tax|levy on sugar, smoking ban|ban on cigarettes, privacy law, fishing limits, gun controls, speed limit
rule: plastic bag ban, curfew for teenagers, school uniforms, minimum wage, dress code, water restrictions, alcohol ban
service: night buses|late bus service, free school meals, recycling scheme, vaccine programme|immunisation campaign
service: mobile libraries, student loans, home deliveries, online courses, rescue flights, legal aid, day nurseries
level: ticket prices|fares, wages|salaries, fuel duty|petrol tax, school fees, working hours, bread prices, rents
level: interest rates, pensions, parking charges, farm subsidies, bonuses, hospital bills, immigration numbers
""")

REGIONS = _table("""
compass: in the north|in northern areas, in the south, in the east, in the west|in western areas
area: in the capital, along the coast|in coastal towns, in rural areas|in the countryside, on the islands
area: near the border|in the border region, nationwide|across the country, in the old town|in the historic quarter
""")

REASONS = _table("""
unrest: after protests|following demonstrations, despite criticism, after strike|following walkout, amid scandal
money: amid rising costs|as expenses climb, after budget talks, despite record profits, as debts grow
politics: before elections|ahead of the vote, after court ruling|following legal verdict, under new leadership
nature: after earthquake, because of drought|due to lack of rain, after storm damage, amid heatwave|in extreme heat
safety: over safety fears, after fatal accident|following deadly crash, amid flu outbreak, after cyber attack|after hack
""")

# --- Questions: somebody asks one thing about one activity -------------------------------------------------------

TASKS = _verbs("""
skill: learn|study > Spanish, Japanese, sign language, chess, algebra, photography, touch typing, juggling, the violin
skill: improve|get better at > my handwriting, my memory, my posture, my singing, my spelling, my public speaking
skill: teach > a toddler to swim, a class of beginners, an adult to read, a friend to ski, a colleague to type, yoga
skill: pass > a driving test, a maths exam, a job interview, a citizenship test, an eye test, a fitness test
house: repair|fix|mend > a dripping tap, a flat tyre, a broken window, a slow laptop, a loud fridge, a blocked drain
house: clean > a wool carpet, leather shoes, a greasy oven, a keyboard, a fish tank, a mattress, silver jewellery
house: remove|get rid of > coffee stains, ants, mould, weeds, a splinter, rust, cockroaches, old wallpaper, a tattoo
house: install|fit > solar panels, a smoke alarm, a dishwasher, a wooden floor, a security camera, a bath, a stair lift
house: paint > a ceiling, a radiator, a garden fence, a bicycle frame, a metal door, a portrait, kitchen tiles
house: build|construct > a tree house, a bookshelf, a chicken coop, a kite, a garden pond, a stone wall, a sauna
house: move|transport > a piano, a terrarium, a wardrobe, a beehive, a snake, a billiard table, a glass door
food: cook|prepare > brown rice, lentils, a roast chicken, salmon, poached eggs, mushroom soup, a pumpkin, octopus
food: bake > sourdough bread, a birthday cake, potatoes, meringues, a fruit pie, biscuits, a pizza
food: store|keep > fresh herbs, olive oil, winter clothes, old photographs, batteries, medicines, apples, paint
food: grow|cultivate > tomatoes, roses, basil, strawberries, an orchid, mushrooms, garlic, a lemon tree, sunflowers
food: give up|quit > coffee, meat, sugar, alcohol, dairy products, fried food, cigarettes, energy drinks
animal: train > a puppy, a parrot, a horse, a rescue dog, a hunting falcon, a kitten
animal: look after|take care of|care for > a tortoise, goldfish, a newborn baby, an elderly parent, a bonsai tree, hens
animal: adopt > a greyhound, a stray cat, a child, a donkey, a rabbit, an old dog
health: treat|relieve > a headache, a sore throat, back pain, hay fever, a bee sting, hiccups, a sprained ankle, acne
health: prevent|avoid > sunburn, muscle cramps, jet lag, seasickness, identity theft, burglaries, food poisoning
health: donate|give away > blood, old clothes, a kidney, used books, leftover food, toys, hair, a piano
money: buy|purchase > a cottage, a used car, a wedding ring, an electric guitar, contact lenses, gold coins, shares
money: sell > a house, a stamp collection, handmade soap, an old phone, a boat, a painting, concert tickets
money: rent|hire > a flat, a van, a wedding dress, a sailing boat, a cabin, a tuxedo, a parking space, camping gear
money: reduce|cut > my electricity bill, my rent, my stress, my screen time, my debts, my weight, my commute
money: insure > a house, a violin, a dog, a sports car, a holiday, a bicycle, a small business, a mobile phone
papers: renew|extend > a passport, a driving licence, a library card, a work permit, a fishing licence, a lease
papers: cancel|call off > a hotel booking, a gym membership, a magazine subscription, a flight, a wedding
papers: write > a cover letter, a poem, a complaint, a will, a business plan, a wedding speech, a novel, a eulogy
papers: translate > a birth certificate, a novel, a menu, a song, a patent, a medical report, a poem
computer: recover|restore > deleted photos, a forgotten password, lost files, a hacked email account, a stolen phone
computer: create|set up > a website, a podcast, a blog, an online shop, a wireless network, a mobile app
computer: block > spam calls, adverts, a website, a bank card, a former colleague, pop-up windows
travel: visit > Rome, Iceland, Japan, the Grand Canyon, Peru, Antarctica, Morocco, a volcano, a coral reef
travel: move to|relocate to > Canada, Germany, Australia, Norway, Mexico, Portugal, Singapore, India
travel: cross > the desert, the Alps, Siberia, the Atlantic, Africa, the border, a frozen lake
people: find > a dentist, a summer job, a piano teacher, a roommate, a lost cat, a lawyer, a babysitter, a mentor
people: organise|arrange > a birthday party, a funeral, a wine tasting, a charity run, a school trip, a quiz night
people: start|found > a bakery, a charity, a book club, a choir, a football team, a newspaper, a trade union, a band
""")

# Other wordings of the objects above, and their families where the verb does not give one.
TASK_SYNONYMS = _table("""
any: my handwriting|my penmanship, a dripping tap|a leaking faucet, a flat tyre|a punctured tire
any: a slow laptop|a sluggish notebook computer, a loud fridge|a noisy refrigerator, a blocked drain|a clogged drain
any: a wool carpet|a woollen rug, a fish tank|an aquarium, mould|mildew, a smoke alarm|a smoke detector
any: a maths exam|a mathematics examination, a metal door|a steel door, a roast chicken|roast poultry
any: a garden pond|a backyard pond, a garden fence|a backyard fence, a puppy|a young dog, a kitten|a young cat
any: a newborn baby|a little infant, an elderly parent|an ageing parent, a headache|a migraine, back pain|an aching back
any: seasickness|motion sickness at sea, burglaries|break-ins, a cottage|a country house, a used car|a second-hand car
any: a wedding ring|a wedding band, a flat|an apartment, a cabin|a log hut, my electricity bill|my power costs
any: a driving licence|a driver's license, a work permit|a work visa, a hotel booking|a hotel reservation
any: a flight|a plane journey, a magazine subscription|a subscription to a magazine, a roommate|a flatmate
any: a cover letter|a job application letter, a complaint|a letter of complaint, a wedding speech|a wedding toast
any: deleted photos|erased pictures, lost files|missing documents, a hacked email account|a compromised mailbox
any: an online shop|a web store, adverts|ads, spam calls|nuisance phone calls, a wireless network|a Wi-Fi network
any: a summer job|seasonal work, a lawyer|an attorney, a babysitter|a child minder, a holiday|a vacation
any: a mobile phone|a cell phone, a funeral|a burial, a football team|a soccer team, potatoes|spuds
any: biscuits|cookies, an old phone|a used handset, a stamp collection|collected postage stamps, cigarettes|tobacco
""")

INTENTS = _table("""
way: how
price: cost
time: duration, moment
danger: risk, mistake
worth: benefit
rule: permission
means: equipment, helper
""")

# {do} is the task with a plain verb ("renew a passport"), {doing} with an -ing form.
QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "how": (
        "How do I {do}{when}?",
        "What is the best way to {do}{when}?",
        "Which steps should I follow to {do}{when}?",
        "Can anyone explain how to {do}{when}?",
        "What is a good method for {doing}{when}?",
    ),
    "cost": (
        "How much does it cost to {do}{when}?",
        "What is the usual price of {doing}{when}?",
        "How expensive is it to {do}{when}?",
        "How much money should I set aside for {doing}{when}?",
    ),
    "duration": (
        "How long does it take to {do}{when}?",
        "How much time is needed to {do}{when}?",
        "How many hours should I plan for {doing}{when}?",
    ),
    "moment": (
        "When is the best time to {do}{when}?",
        "What is the right moment for {doing}{when}?",
        "At what point should I {do}{when}?",
    ),
    "risk": (
        "Is it dangerous to {do}{when}?",
        "What are the risks of {doing}{when}?",
        "How safe is it to {do}{when}?",
        "Could I get hurt by {doing}{when}?",
    ),
    "mistake": (
        "What mistakes should I avoid when {doing}{when}?",
        "Which errors do people often make when they {do}{when}?",
        "What do people usually get wrong when {doing}{when}?",
    ),
    "benefit": (
        "Why should I {do}{when}?",
        "What are the advantages of {doing}{when}?",
        "Is it worth the trouble to {do}{when}?",
        "What would I gain from {doing}{when}?",
    ),
    "permission": (
        "Am I allowed to {do}{when}?",
        "Is it legal to {do}{when}?",
        "Are there any laws against {doing}{when}?",
        "Do I need official permission to {do}{when}?",
    ),
    "equipment": (
        "What equipment do I need to {do}{when}?",
        "Which tools and supplies are required for {doing}{when}?",
        "What gear should I have at hand for {doing}{when}?",
    ),
    "helper": (
        "Who can help me {do}{when}?",
        "Where can I find somebody to {do}{when} with me?",
        "Which expert should I ask for help with {doing}{when}?",
    ),
}

CONTEXTS = _table("""
season: in winter|during the winter, in summer|during the summer
money: on a tight budget|with a small budget, as a student|as a university student
skill: as a beginner|as a complete beginner, by myself|on my own, with one hand|using only one hand
people: with small children|with young children around, with an elderly relative|with an old family member
people: with a dog|with my dog
place: in a big city|in a large city, in the countryside|in a rural area, at home|in my own home
place: abroad|in a foreign country
time: at the weekend|on weekends, at night|during the night, in a hurry|in a great hurry
time: after retirement|after I retire
""")

# --- Spelling ---------------------------------------------------------------------------------------------------

_PLURALS = {"man": "men", "woman": "women", "child": "children", "thief": "thieves", "fisherman": "fishermen"}
_PLURALS |= {"gentleman": "gentlemen", "seaman": "seamen", "postman": "postmen"}
_PARTICIPLES = dict(
    pair.split()
    for pair in """
    buy bought, sell sold, draw drawn, eat eaten, cut cut, read read, write written, tear torn, hide hidden,
    steal stolen, feed fed, ride ridden, drive driven, break broken, throw thrown, build built, put put, wear
    worn, sew sewn, bring brought, pay paid, freeze frozen
    """.split(",")
)
_ONE_CLOSED_SYLLABLE = re.compile(r"[^aeiou]*[aeiou][^aeiouwxy]")  # cut, wrap, drag: the last letter doubles
_DOUBLING = ("cancel", "quit")


def plural(noun: str) -> str:
    """The plural of a singular `noun` (or of the last word of a compound): "baby" -> "babies"."""
    before, _, last = noun.rpartition(" ")
    if last in _PLURALS:
        last = _PLURALS[last]
    elif re.search(r"[^aeiou]y$", last):
        last = last[:-1] + "ies"
    elif re.search(r"(s|x|ch|sh)$", last):
        last += "es"
    else:
        last += "s"
    return f"{before} {last}".strip()


def third_person(verb: str) -> str:
    """The "he/she" form of a plain `verb`, whose particle stays: "carry" -> "carries", "pick up" -> "picks up"."""
    head, _, particle = verb.partition(" ")
    return f"{plural(head)} {particle}".strip()


def ing(verb: str) -> str:
    """The -ing form of a plain `verb`, whose particle stays: "cut down" -> "cutting down"."""
    head, _, particle = verb.partition(" ")
    if re.search(r"[^e]e$", head):
        head = head[:-1]
    elif _ONE_CLOSED_SYLLABLE.fullmatch(head) or head in _DOUBLING:
        head += head[-1]
    return f"{head}ing {particle}".strip()


def participle(verb: str) -> str:
    """The past participle of a plain `verb`, whose particle stays: "tear down" -> "torn down"."""
    head, _, particle = verb.partition(" ")
    if head in _PARTICIPLES:
        head = _PARTICIPLES[head]
    elif head.endswith("e"):
        head += "d"
    elif re.search(r"[^aeiou]y$", head):
        head = head[:-1] + "ied"
    elif _ONE_CLOSED_SYLLABLE.fullmatch(head):
        head += head[-1] + "ed"
    else:
        head += "ed"
    return f"{head} {particle}".strip()


def with_article(noun: str) -> str:
    """`noun` after "a" or "an", by the sound it begins with: "an old uniform", "a uniform"."""
    vowel = noun[0] in "aeiou" and not noun.startswith(("uni", "eu"))
    return f"{'an' if vowel else 'a'} {noun}"
