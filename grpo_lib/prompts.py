"""Chat prompts of our own: what SmolLM2 is asked so that its replies become the chat replay set.

Contract: no torch, no files, and the same list in every process (only `random.Random(seed)` decides). A prompt is one
template with its slots filled: `{city}` takes a topic of that kind, `{a job}` puts "a" or "an" before it, `{many
animal}` its plural; `{tail}` says how to answer, mostly briefly. Topics behind the bar "|" are held out:
`chat_prompts` never uses them, `unseen_prompts` uses nothing else. About half the templates ask for a short answer,
because a very small model learns from the replies. No sums: the task's own text is made elsewhere.
"""
import itertools
import random
import re

MAX_SHARE = 0.03  # no template may make more than this share of the prompts

FIXED = (
    "What is the capital of France?", "What is 85 - 37?",
    "Tom has 12 apples and buys 30 more. How many apples does he have?", "Hello! How are you?",
    "Tell me a short story about a dog.", "Why is the sky blue?", "Write one sentence about the sea.",
    "What should I eat for breakfast?",
)

# Topics are separated by ";". An irregular plural follows a "/": wolf/wolves.
TOPICS = {
    "tail": """Answer in one sentence.; Answer in two sentences.; Answer briefly.; Please keep it short.; I am curious.;
      Please use simple words.""",
    "greet": "Hello!; Hi!; Hi there!; Good morning!; Hey!; Hello, my friend! | Good evening!; Greetings!",
    "ask": """How is your day going?; What is new with you?; Can we talk for a while?; What should we talk about?; Are
      you busy right now?; Can you cheer me up?; Can you tell me something nice?; What makes you smile?; Do you like the
      rain?; Can you ask me a question?; Can you help me relax?; What is a good way to start the day?; How was your
      week? | Do you have a minute?; What is on your mind?; Can you make me laugh?""",
    "news": """I just got a new puppy.; I am moving to a new town.; I start a new job on Monday.; My sister is getting
      married.; I passed my exam.; I lost my keys again.; It has been raining all week.; I cannot decide what to watch
      tonight.; I missed the bus this morning.; I am cooking dinner for my friends.; I have the day off.; My best friend
      is coming to visit.; I just finished a good book. | I bought an old bicycle.; I am waiting for my train.; My
      daughter lost her first tooth.""",
    "about": """Who are you?; What can you do?; Are you a person or a program?; Can you feel happy or sad?; Do you ever
      get tired?; How do you know so much?; Do you have a body?; Can you see me?; Can you make mistakes?; Do you have a
      favorite color?; Do you have a family?; Where do you live?; Can you remember what I said yesterday? | Do you ever
      sleep?; What languages do you speak?; Are you always right?""",
    "animal": """dog; cat; horse; fox/foxes; wolf/wolves; elephant; rabbit; turtle; bear; lion; tiger; penguin; dolphin;
      whale; frog; bee; ant; butterfly/butterflies; spider | owl; hedgehog; otter""",
    "city": """Paris; London; New York; Tokyo; Rome; Berlin; Madrid; Cairo; Sydney; Chicago; San Francisco; Boston;
      Vienna; Amsterdam; Prague; Athens; Moscow; Beijing; Mumbai | Lisbon; Oslo; Nairobi""",
    "country": """Italy; Spain; Germany; Japan; China; India; Egypt; Brazil; Canada; Mexico; Australia; Greece; Turkey;
      Russia; Sweden; Ireland; Poland; Kenya; Argentina | Norway; Portugal; Chile""",
    "dish": """pancakes; tomato soup; an omelet; fried rice; banana bread; chicken soup; a green salad; mashed potatoes;
      apple pie; spaghetti with tomato sauce; pizza; vegetable curry; chocolate cake; oatmeal; a fruit salad; scrambled
      eggs; lemonade; roast chicken; potato salad | waffles; onion soup; a smoothie""",
    "job": """teacher; nurse; doctor; farmer; baker; pilot; firefighter; carpenter; engineer; lawyer; chef; gardener;
      police officer; bus driver; librarian; dentist; plumber; electrician; scientist | beekeeper; sailor; optician""",
    "hobby": """painting; gardening; reading; cooking; hiking; fishing; knitting; dancing; singing; drawing;
      photography; chess; bird watching; baking; camping; running; yoga; pottery; woodworking | origami; kayaking;
      calligraphy""",
    "sport": """football; basketball; tennis; swimming; cycling; baseball; volleyball; rowing; skiing; golf; boxing;
      gymnastics; ice hockey; table tennis; badminton; surfing; skating; rugby; cricket | fencing; judo; handball""",
    "feeling": """happy; sad; lonely; nervous; tired; excited; angry; bored; proud; worried; grateful; jealous;
      confused; calm; embarrassed; homesick; hopeful; disappointed; stressed | overwhelmed; relieved; restless""",
    "concept": """gravity; photosynthesis; electricity; friendship; evaporation; evolution; democracy; inflation;
      climate change; honesty; patience; courage; recycling; oxygen; magnetism; the solar system; the water cycle; the
      food chain; a volcano | migration; a tornado; humility""",
    "why": """leaves change color in autumn; the moon seems to change shape; ice floats on water; the sea is salty;
      birds fly south in winter; we have seasons; we dream; cats purr; bread rises; thunder follows lightning; we need
      sleep; the stars twinkle; metal feels cold | soap cleans our hands; camels have humps; our ears pop on a plane""",
    "event": """the Roman Empire; the first landing on the Moon; the invention of the printing press; the building of
      the Great Wall of China; the French Revolution; the Industrial Revolution; the fall of the Berlin Wall; the
      Renaissance; ancient Egypt; the Middle Ages; the Silk Road; the invention of the telephone; the discovery of
      penicillin | the sinking of the Titanic; the Aztecs; the history of paper""",
    "person": """Albert Einstein; Marie Curie; Isaac Newton; Leonardo da Vinci; William Shakespeare; Mahatma Gandhi;
      Abraham Lincoln; Nelson Mandela; Mozart; Beethoven; Cleopatra; Julius Caesar; Galileo; Charles Darwin; Florence
      Nightingale; Martin Luther King; Pablo Picasso; Vincent van Gogh; Jane Austen | Johann Sebastian Bach; Joan of
      Arc; Charles Dickens""",
    "scene": """a quiet beach; a busy market; an old library; a mountain lake; a small village; a train station at
      night; a rainy street; a forest in winter; a farm at sunrise; a crowded cafe; a rose garden; a desert at noon; a
      city park on Sunday; a snowy morning; a storm at sea; a cozy kitchen; a school playground; a waterfall; a starry
      night | an autumn walk; a lighthouse; an attic""",
    "hero": """a brave little mouse; a lost kitten; a kind giant; a girl who could talk to trees; an old fisherman; a
      boy and his kite; a robot who wanted a friend; a shy dragon; a magic key; a snowman in spring; two brothers in a
      forest; a baker with a secret; a clever fox | a forgotten umbrella; a wise old turtledove; a ghost who was afraid
      of the dark""",
    "goal": """save money; sleep better; wake up early; make new friends; learn a language; eat more vegetables; stay
      calm before an exam; keep my room tidy; drink more water; read more books; stop biting my nails; spend less time
      on my phone; remember names; speak in public; get fit at home; write better; study for a test; waste less food; be
      more patient | improve my handwriting; keep a diary; fall asleep on a plane""",
    "trouble": """a headache; a sore throat; a cold; a stomach ache; a sunburn; a stiff neck; dry skin; tired eyes; a
      blister on my foot; hiccups; trouble sleeping; a runny nose; a sore back; a small cut on my finger; a bad cough;
      an upset stomach; a mosquito bite; cold feet; sore muscles | chapped lips; a bruise on my knee; a splinter in my
      thumb""",
    "letter": """thank my teacher for her help; invite a friend to dinner; ask my boss for a day off; say sorry for
      being late; wish my aunt a happy birthday; ask a neighbor to feed my cat; cancel an appointment; congratulate a
      friend on a new job; ask my landlord to fix the heater; tell a friend that I miss her; remind a coworker about a
      meeting; thank my grandmother for a gift; ask a shop about its opening hours | ask a mechanic about my car; wish
      my uncle a good trip; decline an invitation""",
    "wrong": """she go to school every day; I has two brother; he don't like fish; we was very happy; yesterday I eat an
      apple; they is my friends; the childrens are playing; me and him went home; I am agree with you; he can sings
      well; there is many people here; I didn't saw the movie; her is my sister | him are a good cook; I seen it before;
      we goes by bus""",
    "plain": """The food was good.; The weather was bad.; I want to go home.; The house is old.; He walked down the
      street.; The movie was boring.; She is very smart.; The dog ran away.; I can't come to the party.; The book was
      long.; Give me the report.; The garden was pretty.; You are wrong. | The music was loud.; The road was empty.; My
      room is small.""",
    "pair": """cats and dogs; tea and coffee; summer and winter; books and movies; the city and the countryside; trains
      and planes; apples and oranges; cooking at home and eating out; bicycles and cars; mornings and evenings; the sun
      and the moon; lions and tigers; football and basketball | moths and butterflies; pens and pencils; buses and
      trams""",
    "list": """fruits; vegetables; colors; farm animals; musical instruments; things in a kitchen; things to pack for
      the beach; wild birds; kinds of weather; ways to say thank you; healthy snacks; board games; things that are
      round; flowers; planets; kinds of cheese; tools; school subjects; things that make people smile | gemstones; kinds
      of hats; yellow things""",
    "word": """brave; generous; ancient; curiosity; journey; fragile; honest; enormous; peaceful; ordinary; clever;
      stubborn; harvest; gentle; rare; loyal; silent; wisdom; neighbor | reluctant; shallow; nostalgia""",
    "claim": """children should have homework; everyone should learn to cook; pets make people happier; money can buy
      happiness; it is better to rise early; robots will be part of daily life; zoos are good for animals; people should
      walk more; schools should teach music; phones should be kept out of classrooms; it is good to live alone; a short
      nap is useful; breakfast is the most important meal | libraries still matter; uniforms are a good idea; winning is
      important""",
    "music": """jazz; classical music; rock; folk music; the blues; opera; country music; hip hop; reggae; choir music;
      film music; salsa; electronic music; lullabies; soul music; pop music | gospel; marching band music; tango""",
    "player": """piano; guitar; violin; flute; trumpet; cello; harp; saxophone; ukulele; clarinet; accordion; organ;
      bass; recorder | banjo; harmonica; tuba""",
    "genre": """an adventure novel; a mystery; a fairy tale; a love story; a science fiction novel; a book of poems; a
      biography; a ghost story; a comic book; a fantasy novel; a cookbook; a picture book; a travel book; a historical
      novel; a detective story; a funny novel | a fable; a thriller; a play""",
    "object": """umbrella; clock; lamp; mirror; ladder; compass/compasses; telescope; kettle; candle; pillow; bicycle;
      bridge; key; window; chair; map; camera; bell; hammer | typewriter; doorknob; corkscrew""",
    "season": """spring; summer; autumn; winter; a rainy day; a hot afternoon; the first snow; a windy day; Sunday
      morning; a long weekend; a quiet evening; a school holiday | Christmas Eve; a stormy night; harvest time""",
    "party": """a birthday party; a picnic; a family dinner; a day at the zoo; a game night; a road trip; a wedding; a
      camping trip; a movie night; a school fair; a garden party; a visit to a museum; a weekend at the lake; a
      housewarming | a farewell party; a treasure hunt; a talent show""",
    "nature": """the wind; the ocean; the stars; a river; the rain; an oak tree; the moon; a sunflower; falling leaves;
      the sunrise; a seashell; snowflakes; the night sky; a daisy; the mountains; a firefly; a pond; the desert; moss
      | icicles; a willow""",
}

TEMPLATES = tuple(" ".join(part.split()) for part in """
{greet} {ask} | {greet} {news} | {greet} {about} | {news} What do you say? | {news} What could I do next? {tail} |
{ask} {tail} | {about} | {about} {tail} | Tell me a fun fact about {many animal}. | Where do {many animal} live, and
what do they eat? | Describe {a animal} in one sentence. | What sound or movement is typical of {a animal}? {tail} |
Tell me a short story about {a animal}. | Would {a animal} make a good pet? {tail} | Write a very short story about {a
animal} and {a job}. | What is {city} famous for? | Describe {city} in two sentences. | I am going to {city} for a
weekend. What should I see? | Which country is {city} in? {tail} | Name one thing that visitors enjoy in {city}. | What
is the capital of {country}? | Tell me something interesting about {country}. | What food do people eat in {country}?
{tail} | What is the weather like in {country}? {tail} | What should I know before I travel to {country}? | How do I
make {dish}? | Give me a simple recipe for {dish}. | In two sentences, how do I prepare {dish}? | What goes well with
{dish}? {tail} | Which ingredients do I need for {dish}? | What does {a job} do? | What does {a job} do all day? {tail}
| How do I become {a job}? | What makes a good {job}? {tail} | My friend wants to be {a job}. What would you tell her?
| Write one sentence about {a job} who enjoys {hobby}. | Tell a short story about {a job} who discovers {hobby}. | Why
do people enjoy {hobby}? | Give me one tip for someone who is new to {hobby}. | I want to take up {hobby}. Where do I
begin? | Is {hobby} a good hobby for children? {tail} | What do I need for {hobby}? {tail} | Explain the basic idea of
{sport} in two sentences. | What equipment do I need for {sport}? | Why is {sport} popular? {tail} | How can a beginner
get better at {sport}? | I feel {feeling} today. What should I do? | What does it mean to feel {feeling}? {tail} | My
friend feels {feeling}. How can I help? | Write two sentences about a child who feels {feeling}. | Explain {concept} to
a child. | What is {concept}? | What is {concept}? {tail} | Why is it useful to know about {concept}? {tail} | Give me
an example that helps me understand {concept}. | Briefly describe {concept}. | Can you explain why {why}? | In one
sentence, tell me why {why}. | My little son asks why {why}. What should I tell him? | Explain in simple words why
{why}. Use two sentences. | Tell me about {event}. | Give me one fact about {event}. | Why do people still talk about
{event}? {tail} | Explain {event} to a ten-year-old. | Who was {person}? | Who was {person}? {tail} | What can we learn
from the life of {person}? | Briefly, why is {person} remembered? | Describe {scene}. | Describe {scene} in two
sentences. | Which sounds and smells belong to {scene}? {tail} | Write a short poem about {scene}. | Write a short
story about {hero}. | Write the first sentence of a story about {hero}. | Tell me a bedtime story about {hero}. | Think
of a title for a story about {hero}. | How can I {goal}? | Give me three tips to {goal}. | Give me one tip to {goal}. |
I want to {goal}, but I find it hard. What do you suggest? | What is the first step if I want to {goal}? {tail} | I
have {trouble}. What can I do? | What helps against {trouble}? {tail} | When should I see a doctor about {trouble}?
{tail} | Write a short email to {letter}. | Write a friendly message of one or two sentences to {letter}. | How do I
start a letter to {letter}? | Correct this sentence: {wrong}. | Is this sentence correct? "{wrong}" | Fix the grammar
and give only the corrected sentence: {wrong}. | Rewrite this sentence in a more lively way: {plain} | Say this in a
more polite way: {plain} | Continue with one more sentence: {plain} | What is the difference between {pair}? | Compare
{pair} in two sentences. | Between {pair}, which do you prefer, and why? | Name one thing that {pair} have in common. |
Name three {list}. | List five {list}. | Can you help me think of some {list}? Just a few, please. | What does the word
"{word}" mean? | Use the word "{word}" in a sentence. | Give me another word for "{word}". | Explain the word
"{word}" in one short sentence. | Do you think that {claim}? | Some people say that {claim}. What is your opinion?
{tail} | Give one reason for and one reason against the idea that {claim}. | What makes {music} special? | I have never
listened to {music}. What should I expect? {tail} | Is the {player} hard to learn? | Describe the sound of the {player}
in one sentence. | Give me two tips for learning the {player}. | What makes {genre} worth reading? | Suggest an idea
for {genre} in one sentence. | What is {a object} used for? | What is {a object}? {tail} | Describe {a object} without
naming it. | What would happen if there were no {many object}? {tail} | What do you like about {season}? | What is the
best thing about {season}? {tail} | Write one sentence about {season}. | How do I plan {party}? | What should I bring
to {party}? {tail} | Give me one fun idea for {party}. | Write a short poem about {nature}. | Write one sentence about
{nature}. | Write two rhyming lines about {nature}.
""".split("|"))

_SLOT = re.compile(r"\{(?:(a|many) )?(\w+)\}")


def topics(kind, held=False):
    """The topics of one kind, as written in TOPICS: those for chat_prompts, or the held-out ones."""
    parts = TOPICS[kind].split("|")
    part = parts[held] if len(parts) > 1 else parts[0]  # `tail` has nothing to hold out: both lists use it
    return [" ".join(item.split()) for item in part.split(";")]


def _form(item, how):
    """One topic as it stands in a sentence; how is "a", "many" or None."""
    single, _, plural = item.partition("/")
    if how == "many":
        return plural or single + "s"
    return {"a": "an " if single[0] in "aeiou" else "a "}.get(how, "") + single


def fillings(template, held=False):
    """All prompts that one template makes from the open (or the held-out) topics, in the order of the lists."""
    slots = _SLOT.findall(template)
    bare = _SLOT.sub("{}", template)
    choices = [[_form(item, how) for item in topics(kind, held)] for how, kind in slots]
    texts = (bare.format(*combo) for combo in itertools.product(*choices))
    return [text[0].upper() + text[1:] for text in texts]


def _draw(n, seed, held):
    """n pairs (template, prompt): in every round each template, in a fresh random order, gives one."""
    rng = random.Random(seed)
    pools = {template: fillings(template, held) for template in TEMPLATES}
    for pool in pools.values():
        rng.shuffle(pool)
    seen, pairs = set(FIXED), []
    while len(pairs) < n and pools:
        for template in rng.sample(list(pools), len(pools)):
            prompt = pools[template].pop()
            if not pools[template]:
                del pools[template]
            if prompt not in seen:
                seen.add(prompt)
                pairs.append((template, prompt))
    return pairs[:n]


def chat_pairs(n=5000, seed=1):
    """n pairs (template, prompt) with distinct prompts, none of FIXED; a smaller n gives the same list's start.

    ValueError if the topics give fewer than n prompts, or one template would exceed MAX_SHARE of them."""
    pairs = _draw(n, seed, held=False)
    if len(pairs) < n:
        raise ValueError(f"n={n} prompts were asked for, the topics give {len(pairs)}; ask for fewer or add topics")
    names = [template for template, _ in pairs]
    most = max(map(names.count, set(names)), default=0)
    if most > max(1, MAX_SHARE * n):
        raise ValueError(f"n={n}: one template makes {most} prompts, over {MAX_SHARE:.0%}; ask for fewer")
    return pairs


def chat_prompts(n=5000, seed=1):
    """n distinct user messages (list of str) for sampling the replay set; errors as in chat_pairs."""
    return [prompt for _, prompt in chat_pairs(n, seed)]


def unseen_prompts():
    """100 prompts of mixed kinds made from held-out topics only; no filling occurs in chat_prompts."""
    return [prompt for _, prompt in _draw(100, 0, held=True)]
