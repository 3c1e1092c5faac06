/* How the members of a cohort come to the keys of their pairs: protocol 4.2 after the cards, with 6.1.
 *
 * HOSTILE: members 0, 1 and 2 are honest; member 3 colludes with the coordinator. The coordinator is the network. It makes manifests of any
 * members, shows any of them to any member at any time, says of anyone that it has not paired, and puts any ciphertexts together that
 * were ever signed for any manifest. A member's time is up when the coordinator likes. Later the adversary enters members,
 * and learns every X25519 private key of the round, or every ML-KEM private key.
 * Otherwise: the coordinator keeps to 4.2, with windows that end. Members vanish, up to FAILURES of them. The network loses and repeats Pairings.
 * PATIENT: a window ends only if nothing else can happen; otherwise at any moment.
 *
 * Members are the same in both. A rule is a macro, 1 unless the checker sets it to 0. assurance/model/README.md says what is left out and why
 * that is sound.
 */
#include "rules.h"

#define ALL 15
#define IN(set, u) (((set) >> (u)) & 1)
#define SIZE(set)  (IN(set, 0) + IN(set, 1) + IN(set, 2) + IN(set, 3))
#define WITH(set, u) ((set) | (1 << (u)))

/* A manifest: bits 0-3 are its members. OTHER marks the second of two cards that the colluder signed, FORGED a card of member 0 that
 * member 0 never made. LEAST is the size of the smallest that is accepted. */
#define OTHER  16
#define FORGED 32
#define MEMBERS(manifest) ((manifest) & ALL)

/* protocol 4.2: on a circle in ascending order of ids. */
#define PLACE(manifest, u) SIZE((manifest) & ((1 << (u)) - 1))
#define AHEAD(manifest, u, w) ((PLACE(manifest, w) + SIZE(manifest) - PLACE(manifest, u)) % SIZE(manifest))
#define ENCAPSULATES(manifest, u, w) (u != w && IN(manifest, u) && IN(manifest, w) && \
    (AHEAD(manifest, u, w) <= (SIZE(manifest) - 1) / 2 || (2 * AHEAD(manifest, u, w) == SIZE(manifest) && u < w)))

/* The members: what each has stored. What is only in memory is in no variable between two steps. */
#define ENROLLED 0
#define PAIRED   1
#define READY    2
#define LAPSED   3
byte phase[4];
byte under[4];            /* the manifest that it last paired under */
byte number[4];           /* of the manifests that it paired under */
byte drawn[4];            /* which of the draws under that manifest is in the Pairing that it stored: the first (0) or another (1) */
bool has_keys[4] = true;  /* the private keys of its card */
#define NEWEST 1
#define FORMER 2
byte secrets[4];          /* that it encapsulated: under the last manifest, under earlier ones */
bool late[4];             /* its time is up, for models in which it may go on */
byte m_, d_, k_;          /* in memory: the manifest, which draw its secrets are, how many manifests it paired under before */

bool K1_equal_keys = true;
bool K2_one_manifest_has_keys = true;
bool K3_one_pairing_a_manifest = true;
bool K4_nothing_is_left = true;
bool K4_lapsed_is_final = true;
bool K5_three_manifests_each_of_fewer = true;
bool K6_all_have_paired = true;
bool K6_the_others_become_ready = true;
bool K7_a_recording_opens_nothing = true;
bool unreached = true; /* what the checker asks for to see that it can happen */

#define SUBSET(manifest, me) (!(MEMBERS(manifest) & ~under[me]))
#define BOTH_HAVE(manifest, me, u) (IN(manifest, u) && IN(under[me], u))
#define SAME_CARDS(manifest, me) (!(BOTH_HAVE(manifest, me, 3) && (((manifest) ^ under[me]) & OTHER)) && \
    !(BOTH_HAVE(manifest, me, 0) && (((manifest) ^ under[me]) & FORGED)))
#define FOLLOWS(manifest, me) (!under[me] || ((manifest) != under[me] && (SUBSET(manifest, me) || !RULE_FORMER_MEMBERS) && \
    (SAME_CARDS(manifest, me) || !RULE_CARDS_UNCHANGED) && (number[me] < 3 || !RULE_THIRD_AT_MOST)))
#define OPEN_TO_CARDS(me) (phase[me] == ENROLLED || (phase[me] == PAIRED && RULE_NEXT_CARDS) || \
    (phase[me] == READY && !RULE_READY_IS_FINAL) || (phase[me] == LAPSED && !RULE_LAPSED_IS_FINAL))
#define CARDS_PASS(manifest, me) (IN(manifest, me) && SIZE(manifest) >= LEAST && \
    (!((manifest) & FORGED) || (!RULE_CARD_SIGNED && (me != 0 || !RULE_OWN_CARD))))
/* X25519 needs the private key: who erased it can't pair. */
#define PAIRS(manifest, me) (has_keys[me] && CARDS_PASS(manifest, me) && \
    ((OPEN_TO_CARDS(me) && FOLLOWS(manifest, me)) || (!RULE_PAIRING_KEPT && phase[me] == PAIRED && (manifest) == under[me])))

inline store_pairing() {
  printf("member %d stores a Pairing for manifest %d, draw %d\n", me, m_, d_);
  K2_one_manifest_has_keys = phase[me] != READY;
  K4_lapsed_is_final = phase[me] != LAPSED && !late[me];
  K5_three_manifests_each_of_fewer = !under[me] || m_ == under[me] || (SUBSET(m_, me) && SIZE(m_) < SIZE(under[me]) && number[me] < 3);
  assert(K2_one_manifest_has_keys);
  assert(K4_lapsed_is_final);
  assert(K5_three_manifests_each_of_fewer);
  secrets[me] = (under[me] && under[me] != m_ -> FORMER | NEWEST : secrets[me] | NEWEST);
  number[me] = number[me] + (under[me] != m_);
  under[me] = m_;
  drawn[me] = d_;
  phase[me] = PAIRED
}

/* protocol 4.2: the root keys, and in the same write no private key and no secret that was encapsulated. */
inline store_keys() {
  printf("member %d stores its keys under manifest %d\n", me, under[me]);
  K4_lapsed_is_final = phase[me] != LAPSED && !late[me];
  assert(K4_lapsed_is_final);
  phase[me] = READY;
  if
  :: RULE_ERASED_WITH_KEYS -> erase()
  :: else
  fi
}

inline erase() {
  has_keys[me] = false;
  secrets[me] = (RULE_FORMER_SECRETS -> 0 : secrets[me] & FORMER)
}

inline lapse() {
  printf("member %d is too late\n", me);
  phase[me] = LAPSED;
  late[me] = false;
  if
  :: RULE_LAPSE_ERASES -> erase()
  :: else
  fi;
  if
  :: RULE_LAPSED_IS_FINAL -> under[me] = 0; number[me] = 0; drawn[me] = 0 /* nothing asks for them any more */
  :: else
  fi
}

#if HOSTILE

/* Every manifest that can matter. A forged one comes first: it matters only in models without a rule, and is found sooner so. */
#define MANIFESTS(X) X(7|FORGED) X(15|FORGED) X(15) X(7) X(11) X(13) X(14) X(3) X(5) X(6) X(9) X(10) X(12) X(1) X(2) X(4) \
    SECOND_CARDS(X)
#if CARDS == 2
#define SECOND_CARDS(X) X(15|OTHER) X(11|OTHER) X(13|OTHER) X(14|OTHER) X(9|OTHER) X(10|OTHER) X(12|OTHER)
#else
#define SECOND_CARDS(X)
#endif

/* Pairings that left their members: the k-th of member u. */
#define AT(u, k) (4 * (u) + (k))
byte sent[12];            /* its manifest */
byte draws[12];           /* bit d: with draw d */
bool swapped[3], swap_;   /* its last Pairing is for keys of the coordinator in place of those of honest members */

/* What a member took from another honest one for their pair. */
#define RIGHT   1         /* the ciphertext of the other's Pairing for this manifest with draw 0; RIGHT + 1 with draw 1 */
#define WRONG   3         /* another ciphertext that honest members made, or none: it gives a secret that the sender does not have */
#define KNOWN   4         /* a ciphertext whose secret the adversary knows */
#define FROM(v, u) (3 * (v) + (u))
byte taken[9];

/* A draw is fresh: it differs from what left under this manifest before. */
inline draw() {
  k_ = (under[me] == m_ -> number[me] - 1 : number[me]);
  d_ = sent[AT(me, k_)] == m_ && draws[AT(me, k_)]
}

inline send(m, k, d) {
  printf("member %d sends its Pairing for manifest %d, draw %d\n", me, m, d);
  sent[AT(me, k)] = m;
  draws[AT(me, k)] = draws[AT(me, k)] | (1 << (d));
  K3_one_pairing_a_manifest = draws[AT(me, k)] != 3;
  assert(K3_one_pairing_a_manifest)
}

#define TAKE(m) :: PAIRS(m, me) -> m_ = m

/* Which ciphertexts the coordinator has, and which of them the member's checks pass. */
#define LEFT(u, k, m, d) (sent[AT(u, k)] == (m) && IN(draws[AT(u, k)], d))
#define SENT(u, m, d) (LEFT(u, 0, m, d) || LEFT(u, 1, m, d) || LEFT(u, 2, m, d) || LEFT(u, 3, m, d))
#define OTHERWISE(u, k, w) (sent[AT(u, k)] && sent[AT(u, k)] != under[me] && ENCAPSULATES(sent[AT(u, k)], u, w))
#define OF_ANOTHER_MANIFEST(u) (OTHERWISE(u, 0, me) || OTHERWISE(u, 1, me) || OTHERWISE(u, 2, me) || OTHERWISE(u, 3, me))
#define FOR_ANOTHER(u, w) (me != w && ENCAPSULATES(under[me], u, w))
#define OF_ANOTHER_PLACE(u) ((SENT(u, under[me], 0) || SENT(u, under[me], 1)) && (FOR_ANOTHER(u, 0) || FOR_ANOTHER(u, 1) || \
    FOR_ANOTHER(u, 2) || FOR_ANOTHER(u, 3)))
#define OF_ANOTHER_SENDER(u, s) (u != s && ENCAPSULATES(under[me], s, me) && (SENT(s, under[me], 0) || SENT(s, under[me], 1)))
#define EXPECTED(u) ENCAPSULATES(under[me], u, me)
#define REPLAY(u) (!RULE_CIPHERTEXT_OF_ITS_MANIFEST && OF_ANOTHER_MANIFEST(u))
#define MOVED(u) (!RULE_CIPHERTEXT_OF_ITS_PLACE && OF_ANOTHER_PLACE(u))
#define BY_THE_COLLUDER(u) (!RULE_CIPHERTEXT_OF_ITS_SENDER && IN(under[me], 3))
#define BY_AN_HONEST_ONE(u) (!RULE_CIPHERTEXT_OF_ITS_SENDER && (OF_ANOTHER_SENDER(u, 0) || OF_ANOTHER_SENDER(u, 1) || OF_ANOTHER_SENDER(u, 2)))
#define ANYTHING (!RULE_EVERY_CIPHERTEXT || !RULE_CIPHERTEXT_SIGNED)
#define PASSES(u) (!EXPECTED(u) || SENT(u, under[me], 0) || SENT(u, under[me], 1) || REPLAY(u) || MOVED(u) || BY_THE_COLLUDER(u) || \
    BY_AN_HONEST_ONE(u) || ANYTHING)
#define CIPHERTEXT(u) \
  if \
  :: !EXPECTED(u) \
  :: EXPECTED(u) && !RULE_CIPHERTEXT_SIGNED -> taken[FROM(me, u)] = KNOWN \
  :: EXPECTED(u) && BY_THE_COLLUDER(u) -> taken[FROM(me, u)] = KNOWN \
  :: EXPECTED(u) && (REPLAY(u) || MOVED(u) || BY_AN_HONEST_ONE(u) || !RULE_EVERY_CIPHERTEXT) -> taken[FROM(me, u)] = WRONG \
  :: EXPECTED(u) && SENT(u, under[me], 0) -> taken[FROM(me, u)] = RIGHT \
  :: EXPECTED(u) && SENT(u, under[me], 1) -> taken[FROM(me, u)] = RIGHT + 1 \
  fi

/* The secrets of a pair's root key, protocol 6.1, as member v has them. Hashes are ideal: keys are equal if both secrets are, with all that they
 * were made of. Later every X25519 private key may be known, or every ML-KEM private key: so before that the adversary may know neither secret. */
#define ONE_FOR_ALL(v) (!RULE_FRESH_FOR_EACH && ENCAPSULATES(under[v], v, 3))
#define MLKEM_KNOWN(v, w) (ENCAPSULATES(under[v], v, w) -> swapped[v] || ONE_FOR_ALL(v) : \
    taken[FROM(v, w)] == KNOWN || (!RULE_FRESH_FOR_EACH && ENCAPSULATES(under[v], w, 3)))
#define X25519_KNOWN(v, w) (w == 0 && v != 0 && (under[v] & FORGED))
#define PAIR(v, w) (v != w && phase[v] == READY && IN(under[v], w))
#define OPENED(v, w) (PAIR(v, w) && (MLKEM_KNOWN(v, w) || X25519_KNOWN(v, w)))
#define SAME_SECRET(v, w) (ENCAPSULATES(under[v], v, w) -> taken[FROM(w, v)] == RIGHT + drawn[v] && !swapped[v] : \
    taken[FROM(v, w)] == RIGHT + drawn[w] && !swapped[w])
#define UNEQUAL(v, w) (PAIR(v, w) && PAIR(w, v) && under[v] == under[w] && \
    (!SAME_SECRET(v, w) || ((under[v] & FORGED) && (v == 0 || w == 0))))

inline check_keys() {
  K7_a_recording_opens_nothing = !OPENED(me, 0) && !OPENED(me, 1) && !OPENED(me, 2);
  K1_equal_keys = !UNEQUAL(me, 0) && !UNEQUAL(me, 1) && !UNEQUAL(me, 2);
  assert(K7_a_recording_opens_nothing);
  assert(K1_equal_keys);
  unreached =
    (WITNESS != 1 || !(phase[0] == READY && phase[1] == READY && under[0] == 3 && under[1] == 3 && sent[0] == 15 && sent[1] == 7)) &&
    (WITNESS != 2 || !(phase[0] == READY && phase[1] == READY && phase[2] == READY && under[0] != under[1] && under[1] != under[2] &&
      under[0] != under[2])) &&
    (WITNESS != 3 || !(phase[0] == READY && phase[1] == READY && phase[2] == LAPSED && under[0] == 15 && under[1] == 15 && sent[8] == 15));
  assert(unreached)
}

proctype Member(byte me) {
  end_waiting:
  do
  /* Cards: the secrets are drawn in memory, stored with the Pairing, and then it leaves. A crash may come between. Without CRASHES
   * these are one step, because a crash before the write leaves nothing, and one after it equals a Pairing that the coordinator holds back. */
  :: atomic {
     if MANIFESTS(TAKE) fi;
     d_step { draw() };
     if
     :: !RULE_KEY_OF_ITS_CARD -> swap_ = true
     :: true
     fi;
#if RULE_PAIRING_STORED_FIRST
     if
     :: CRASHES -> printf("member %d crashes before it stores its Pairing\n", me)
     :: d_step { store_pairing(); swapped[me] = swap_ };
        if
        :: CRASHES -> printf("member %d crashes before it sends its Pairing\n", me)
        :: d_step { send(under[me], number[me] - 1, drawn[me]) }
        fi
     fi;
#else
     d_step { send(m_, k_, d_) };
     if
     :: printf("member %d crashes before it stores its Pairing\n", me)
     :: d_step { store_pairing() }
     fi;
#endif
     d_step { m_ = 0; d_ = 0; k_ = 0; swap_ = false } }
  /* Cards of the manifest that it paired under, again. */
  :: d_step { CRASHES && phase[me] == PAIRED && !SENT(me, under[me], drawn[me]) && RULE_PAIRING_SENT_AGAIN ->
     send(under[me], number[me] - 1, drawn[me]) }
  /* Ciphertexts: one from each honest member that encapsulates to it; from the colluder anything passes. A crash before the write leaves nothing. */
  :: atomic {
     phase[me] == PAIRED && PASSES(0) && PASSES(1) && PASSES(2);
     CIPHERTEXT(0); CIPHERTEXT(1); CIPHERTEXT(2);
     if
     :: CRASHES -> d_step {
        printf("member %d crashes before it stores its keys\n", me);
        taken[FROM(me, 0)] = 0; taken[FROM(me, 1)] = 0; taken[FROM(me, 2)] = 0 }
     :: d_step { store_keys(); check_keys() }
     fi }
  /* Its clock, before it looks at any message. */
  :: d_step { phase[me] < READY && RULE_CLOCK_FIRST -> lapse() }
  :: d_step { phase[me] < READY && !RULE_CLOCK_FIRST && !late[me] -> printf("member %d has no time left\n", me); late[me] = true }
  :: d_step { late[me] && phase[me] < READY -> lapse() }
  :: d_step { phase[me] == READY && has_keys[me] -> printf("member %d erases its private keys\n", me); erase() }
  /* The adversary enters a member that is done. */
  :: d_step { ENTERS && (phase[me] == READY || phase[me] == LAPSED) && (has_keys[me] || secrets[me]) ->
     printf("the adversary enters member %d\n", me);
     K4_nothing_is_left = false;
     assert(K4_nothing_is_left) }
  od
}

init {
  atomic { run Member(0); run Member(1); run Member(2) }
}

#endif

#if !HOSTILE

/* The coordinator: its newest manifest, which of its members have paired, and how the cohort ended. A Pairing under way is its manifest. */
byte newest = ALL, windows = 1;
byte paired;
byte outdated;            /* those of `paired` that paired under another manifest, for the model without a rule */
bool formed, failed;
byte transit[4], copy, copy_from;
bool was_sent[4];         /* its last Pairing, for the model without a rule */
byte losses = LOSSES, copies = 1, restarts = RESTARTS;
byte gone;                /* members that have vanished */
byte time;                /* in windows since the last card; enrolment is over */

#define LIVE(u) (!IN(gone, u))
#define DONE(u) (IN(gone, u) || phase[u] >= READY)
#define ALL_DONE (DONE(0) && DONE(1) && DONE(2) && DONE(3))
#define MISSES(u, v) (ENCAPSULATES(newest, u, v) && !IN(paired, u))
#define OUTDATED(u, v) (ENCAPSULATES(newest, u, v) && IN(outdated, u))
/* protocol 4.2: what the coordinator hands out to member v, and what v's checks pass. */
#define HANDED_OUT(v) (formed || (!RULE_ALL_PAIRED_FIRST && IN(paired, v) && \
    !MISSES(0, v) && !MISSES(1, v) && !MISSES(2, v) && !MISSES(3, v)))
#define CIPHERTEXTS_PASS(v) (under[v] == newest && !OUTDATED(0, v) && !OUTDATED(1, v) && !OUTDATED(2, v) && !OUTDATED(3, v))
#define HAS_PAIRED(u) (!IN(newest, u) || (IN(paired, u) && (under[u] == newest || phase[u] == LAPSED)))
#define TIME_FOR_MEMBERS (RULE_TIME_FOR_THREE -> 3 : 2)

#define MAY_PAIR(u) (LIVE(u) && !formed && !failed && PAIRS(newest, u))
#define MAY_SEND(u) (LIVE(u) && phase[u] == PAIRED && under[u] == newest && !IN(paired, u) && !failed && !transit[u] && !was_sent[u])
#define MAY_BE_READY(u) (LIVE(u) && phase[u] == PAIRED && HANDED_OUT(u) && CIPHERTEXTS_PASS(u))
#define BUSY(u) (transit[u] || MAY_PAIR(u) || MAY_SEND(u) || MAY_BE_READY(u))
#define QUIET (!BUSY(0) && !BUSY(1) && !BUSY(2) && !BUSY(3))

inline receive(u, m) {
  if
  :: !formed && !failed && IN(newest, u) && (m == newest || !RULE_NEWEST_PAIRINGS) ->
     outdated = ((m != newest && !IN(paired, u)) -> WITH(outdated, u) : outdated);
     paired = WITH(paired, u);
     formed = paired == newest
  :: else
  fi
}

/* Who has not paired is left out, and all pair afresh. The third manifest is the last. */
inline end_window() {
  if
  :: windows == 3 || (RULE_LEFT_OUT && SIZE(paired) < LEAST) -> printf("the cohort fails\n"); failed = true
  :: else ->
     printf("the window ends; %d have paired\n", paired);
     windows++;
     newest = (RULE_LEFT_OUT -> paired : newest);
     paired = (RULE_LEFT_OUT -> 0 : paired);
     outdated = 0
  fi
}

inline send() {
  printf("member %d sends its Pairing for manifest %d\n", me, under[me]);
  transit[me] = under[me];
  was_sent[me] = !RULE_PAIRING_SENT_AGAIN
}

inline restart() {
  printf("member %d restarts\n", me);
  restarts--
}

proctype Member(byte me) {
  end_waiting:
  do
  :: atomic {
     MAY_PAIR(me) -> m_ = newest;
     if
     :: restarts -> d_step { restart() }
     :: d_step { store_pairing(); transit[me] = 0; was_sent[me] = false };
        if
        :: restarts -> d_step { restart() }
        :: d_step { send() }
        fi
     fi;
     m_ = 0 }
  /* The coordinator still shows it Cards. */
  :: d_step { MAY_SEND(me) -> send() }
  :: atomic {
     MAY_BE_READY(me);
     if
     :: restarts -> d_step { restart() }
     :: d_step {
        store_keys();
        K6_all_have_paired = HAS_PAIRED(0) && HAS_PAIRED(1) && HAS_PAIRED(2) && HAS_PAIRED(3);
        assert(K6_all_have_paired) }
     fi }
  :: d_step { LIVE(me) && phase[me] < READY && RULE_LAPSE && time >= TIME_FOR_MEMBERS -> lapse() }
  :: d_step { LIVE(me) && SIZE(gone) < FAILURES -> printf("member %d vanishes\n", me); gone = WITH(gone, me) }
  od
}

proctype Network(byte from) {
  end_waiting:
  do
  :: d_step { transit[from] -> printf("message %d of member %d arrives\n", transit[from], from); receive(from, transit[from]); transit[from] = 0 }
  :: d_step { transit[from] && losses -> printf("message %d of member %d is lost\n", transit[from], from); losses--; transit[from] = 0 }
  :: d_step { transit[from] && copies ->
     printf("message %d of member %d is repeated\n", transit[from], from);
     copies--; copy = transit[from]; copy_from = from }
  :: d_step { copy && copy_from == from -> printf("the repetition arrives\n"); receive(from, copy); copy = 0; copy_from = 0 }
  od
}

inline pass_window() {
  time++;
  if
  :: RULE_WINDOW_ENDS && !formed && !failed -> end_window()
  :: else -> printf("the time of a window passes\n")
  fi
}

proctype Clock() {
  end_waiting:
  do
  :: d_step { time < 3 && !ALL_DONE && (!PATIENT || QUIET) -> pass_window() }
  od
}

#define IS_READY(u) (IN(gone, u) || phase[u] == READY)

init {
  atomic {
    run Member(0); run Member(1); run Member(2); run Member(3);
    run Network(0); run Network(1); run Network(2); run Network(3);
    run Clock()
  }
  ALL_DONE;
  unreached = (WITNESS != 4 || !(formed && windows == 3 && SIZE(gone) == 2)) && (WITNESS != 5 || !failed) &&
    (WITNESS != 6 || !(formed && windows == 1 && SIZE(gone) == 1));
  assert(unreached);
#if PATIENT
  K6_the_others_become_ready = windows <= 1 + SIZE(gone) &&
    ((IS_READY(0) && IS_READY(1) && IS_READY(2) && IS_READY(3)) || (failed && (SIZE(ALL & ~gone) < LEAST || SIZE(gone) >= 3)));
  assert(K6_the_others_become_ready)
#endif
}

ltl K6_pairing_ends { <> ALL_DONE }

#endif
