/* Whether an attempt ends, with a coordinator that keeps to the protocol: its phases as in protocol/coordinator.
 *
 * Members 0, 1 and 2 follow the protocol too. Only member 3 may fail: it vanishes at any moment, refuses,
 * complains falsely, with or without an upload of its own, or deals falsely. The network loses LOSSES messages and repeats
 * one; one member is restarted. A message that the coordinator refuses changes nothing, so its sender counts as silent.
 * The coordinator repeats a request until it is answered, so only answers can be lost here.
 *
 * PATIENT: time runs out only if nothing else can happen, except for the grace of protocol 4.5; otherwise at any moment.
 */
#include "rules.h"

#define N_MIN 3
#define T 3
#define ALL 15
#define IN(set, u) (((set) >> (u)) & 1)
#define SIZE(set)  (IN(set, 0) + IN(set, 1) + IN(set, 2) + IN(set, 3))

#define COLLECTING 1
#define CHECKING   2
#define FREEZING   3
#define REVEALING  4
#define VOIDING    5
#define LOST       6
#define ENDED      7
#define RECOVERED  7
#define FAILED     8
#define VOIDED     9
#define ABANDONED  10

#define UPLOAD  1
#define RECEIPT 2
#define VOTE    3
#define REFUSAL 4
#define REVEAL  5
#define AGAIN   6       /* a reveal after an eviction */
#define VOID    7
#define REPORT  8
#define CLAIM   9       /* a report that it revealed, true or not */

#define COMPLAINS     1 /* about dealer 0, falsely */
#define DEALS_BADLY   2 /* a box for member 0 that fails its checks */
#define DEALS_FALSELY 3 /* shares that pass every check and make no secret */
#define STAYS_AWAY    4 /* also complains, and uploads nothing */
byte fault;             /* of member 3 */
bool gone;              /* member 3 has vanished */

/* The coordinator. */
byte phase = COLLECTING;
byte uploads, receipts, disputed, survivors, votes, refusals, spent, voids, reveals, reports;
byte told;              /* members known to have revealed, after the latest end of a certified attempt */
bool certified;
bool starved;           /* member 0 holds no share of dealer 3, which stays in the sum */
byte counted_twice;     /* votes, for the model without a rule */
bool evicted;

/* The members: what each signed, and its one answer in transit. */
byte given[4], answer[4];
byte made;              /* members that have made a reveal, sent or not */
byte copy, copy_from;
byte losses = LOSSES, copies = 1, restarts = 1;
byte kind_, open_;
#if !RULE_ANSWER_AGAIN
byte heard[4];          /* the last request to each */
#endif

bool P2_a_certificate_has_t_votes = true;
bool P5_the_attempt_gives_a_result = true;
bool unreached = true; /* what the checker asks for to see that it can happen */

#define WITH(set, m) ((set) | (1 << (m)))

/* The next phase. Answers that no later phase accepts or reads are forgotten, so that states that differ only in these are
 * one: such an answer changes nothing when it arrives, and a member that is still sending it only answers late. */
#define KEPT(kind, to) ((((to) == VOIDING && (kind) == VOTE) || \
    (((to) == FREEZING || (to) == REVEALING) && (kind) == RECEIPT)) * (kind))
inline move(to) {
  printf("the coordinator goes from phase %d to %d\n", phase, to);
  phase = to;
  answer[0] = KEPT(answer[0], to); answer[1] = KEPT(answer[1], to);
  answer[2] = KEPT(answer[2], to); answer[3] = KEPT(answer[3], to);
  copy = KEPT(copy, to); copy_from = (copy -> copy_from : 0);
  if
  :: to == CHECKING
  :: to == FREEZING -> uploads = 0; disputed = 0
  :: to == REVEALING -> votes = 0; refusals = 0; counted_twice = 0; forget_given()
  :: to == VOIDING -> starved = false; uploads = 0; disputed = 0; survivors = 0; votes = 0; refusals = 0
  :: else -> survivors = 0; receipts = (RULE_REPORT_IN_ANY_PHASE -> 0 : receipts);
     told = (certified && (to) == LOST -> reveals : 0);
     certified = certified && (to) == LOST; made = (certified -> made : 0);
     reveals = 0; evicted = false; starved = false; spent = 0; voids = 0; forget_given()
  fi
}

inline forget_given() {
  given[0] = 0; given[1] = 0; given[2] = 0; given[3] = 0
}

inline begin_voiding(already) {
  spent = already;
  move(VOIDING);
  still_possible()
}

inline still_possible() {
  open_ = ALL & ~spent & ~voids;
  if
  :: SIZE(voids) + SIZE(open_) < T -> move(LOST)
  :: else
  fi;
  open_ = 0
}

/* protocol 4.5: a lone complaint drops its dealer, and each dealer that stays has t clean receipts. If too few would stay,
 * complaints of members that can't be in the sum don't count. */
#define UNDISPUTED (uploads & ~disputed)
#define ANYWAY (RULE_DISPUTES_AMONG_SURVIVORS && SIZE(UNDISPUTED) < N_MIN && !IN(uploads, 3) && SIZE(receipts) > T)
#define MAY_PROPOSE (SIZE(receipts) >= T && \
    (ANYWAY || (SIZE(UNDISPUTED) >= N_MIN && (RULE_DROP_DISPUTED || !disputed))))
inline propose() {
  survivors = (ANYWAY -> uploads : UNDISPUTED);
  move(FREEZING)
}

inline end_checking() {
  if
  :: MAY_PROPOSE -> propose()
  :: else -> begin_voiding(0)
  fi
}

/* protocol 4.9: of four decryptors q = 3 must not have revealed for an Erasure. */
inline close_certified() {
  if
  :: RULE_CERTIFIED_IS_CLOSED && certified && SIZE(told) > 1 -> move(FAILED)
  :: else
  fi
}

inline expire() {
  if
  :: phase == COLLECTING && SIZE(uploads) >= N_MIN -> move(CHECKING)
  :: phase == COLLECTING && SIZE(uploads) < N_MIN -> begin_voiding(0)
  :: phase == CHECKING -> end_checking()
  :: phase == FREEZING -> begin_voiding(votes)
  :: phase == REVEALING -> certified = true; move(LOST); close_certified()
  :: phase == VOIDING -> move(LOST)
  fi
}

/* protocol 4.7: with t runs of each dealer the secrets are rebuilt; a dealer that is proved false is evicted. */
inline recover() {
  if
  :: SIZE(reveals) < T || (starved && SIZE(reveals & ~1) < T)
  :: SIZE(reveals) >= T && fault == DEALS_FALSELY && IN(survivors, 3) && !evicted ->
     if
     :: RULE_EVICT -> evicted = true; reveals = 0; answer[0] = 0; answer[1] = 0; answer[2] = 0; answer[3] = 0; copy = 0; copy_from = 0
     :: else -> move(FAILED)
     fi
  :: else -> move(RECOVERED)
  fi
}

inline receive(m, kind) {
  if
  :: phase == COLLECTING && kind == UPLOAD ->
     uploads = WITH(uploads, m);
     if
     :: uploads == (fault == STAYS_AWAY -> ALL - 8 : ALL) -> move(CHECKING) /* member 3's time is up */
     :: else
     fi
  :: phase == CHECKING && kind == RECEIPT ->
     receipts = WITH(receipts, m);
     disputed = disputed |
       (m == 3 && (fault == COMPLAINS || fault == STAYS_AWAY) && IN(uploads, 0)) |
       ((m == 0 && fault == DEALS_BADLY && IN(uploads, 3)) << 3);
     if
     :: receipts == ALL -> end_checking()
     :: else
     fi
  :: RULE_LATE_RECEIPTS && (phase == FREEZING || phase == REVEALING) && kind == RECEIPT ->
     receipts = WITH(receipts, m);
     starved = starved || (m == 0 && fault == DEALS_BADLY && IN(survivors, 3))
  :: phase == FREEZING && kind == VOTE ->
     counted_twice = counted_twice + (!RULE_COUNT_ONCE && IN(votes, m));
     votes = WITH(votes, m);
     if
     :: SIZE(votes) + counted_twice >= T ->
        P2_a_certificate_has_t_votes = SIZE(votes) >= T;
        assert(P2_a_certificate_has_t_votes);
        move(REVEALING)
     :: else
     fi
  :: phase == FREEZING && kind == REFUSAL && !IN(votes, m) ->
     refusals = WITH(refusals, m);
     if
     :: SIZE(votes | ((RULE_LATE_RECEIPTS -> ALL : receipts) & ~refusals)) < T -> begin_voiding(votes)
     :: else
     fi
  :: phase == REVEALING && kind == (evicted -> AGAIN : REVEAL) ->
     reveals = WITH(reveals, m);
     recover()
  :: phase == VOIDING && kind == VOID && !IN(spent, m) ->
     voids = WITH(voids, m);
     if
     :: SIZE(voids) >= T -> move(VOIDED)
     :: else
     fi
  :: phase == VOIDING && kind == VOTE && !IN(voids, m) ->
     spent = WITH(spent, m);
     still_possible()
  :: phase == LOST && (kind == CLAIM || (kind == REPORT && IN(made, m) && m != 3)) ->
     told = WITH(told, m);
     close_certified()
  :: phase == LOST && kind == REPORT && !(IN(made, m) && m != 3) ->
     reports = WITH(reports, m);
     if
     :: RULE_LOST_IS_CLOSED && SIZE(reports) >= T -> move(ABANDONED)
     :: else
     fi
  :: else
  fi
}

/* The coordinator's current request to a member, and the member's answer; 0 if there is none. */
#define ASKED(m) ( \
    (phase == COLLECTING && !IN(uploads, m) && !(m == 3 && fault == STAYS_AWAY)) * UPLOAD + \
    ((phase == CHECKING || (RULE_LATE_RECEIPTS && (phase == FREEZING || phase == REVEALING))) && \
      !IN(receipts, m)) * RECEIPT + \
    (phase == FREEZING && IN(receipts, m) && !IN(votes, m) && !IN(refusals, m) && given[m] != VOID && \
      SIZE(votes | (receipts & ~refusals)) >= T) * VOTE + \
    (phase == REVEALING && IN(receipts, m) && !IN(reveals, m)) * (evicted -> AGAIN : REVEAL) + \
    (phase == VOIDING && !IN(voids, m) && !IN(spent, m) && given[m] != VOTE) * VOID + \
    (phase == LOST && !IN(reports | told, m) && (RULE_REPORT_IN_ANY_PHASE || IN(receipts, m))) * REPORT)
#if RULE_ANSWER_AGAIN
#define NOT_TOLD(m) 1
#else
#define NOT_TOLD(m) (heard[m] != ASKED(m))
#endif

inline speak(m, kind) {
  printf("member %d answers by message %d\n", m, kind);
  given[m] = (kind == VOTE || kind == VOID -> kind : given[m]);
  answer[m] = kind;
  made = ((kind == REVEAL || kind == AGAIN) -> WITH(made, m) : made);
#if !RULE_ANSWER_AGAIN
  heard[m] = kind
#endif
}

proctype Member(byte me) {
  end_waiting:
  do
  :: d_step { !answer[me] && ASKED(me) && !(me == 3 && gone) &&
     NOT_TOLD(me) -> kind_ = ASKED(me); speak(me, kind_); kind_ = 0 }
  :: d_step { me == 3 && !gone && !answer[3] && ASKED(3) == VOTE -> speak(3, REFUSAL) }
  :: d_step { me == 3 && !gone && !answer[3] && ASKED(3) == REPORT && certified -> speak(3, CLAIM) }
  :: d_step { me == 3 && !gone -> printf("member 3 vanishes\n"); gone = true }
  /* Killed before its answer left: it has stored what it signed, and the coordinator still asks. */
  :: d_step { answer[me] && restarts -> printf("member %d restarts\n", me); restarts--; answer[me] = 0 }
  od
}

proctype Network(byte from) {
  end_waiting:
  do
  :: d_step { answer[from] -> printf("message %d of member %d arrives\n", answer[from], from); receive(from, answer[from]); answer[from] = 0 }
  :: d_step { answer[from] && losses -> printf("message %d of member %d is lost\n", answer[from], from); losses--; answer[from] = 0 }
  :: d_step { answer[from] && copies ->
     printf("message %d of member %d is repeated\n", answer[from], from);
     copies--; copy = answer[from]; copy_from = from }
  :: d_step { copy && copy_from == from -> printf("the repetition arrives\n"); receive(from, copy); copy = 0; copy_from = 0 }
  od
}

#if RULE_TIME_RUNS_OUT
proctype Clock() {
  end_waiting:
  do
#if PATIENT
  :: atomic { timeout && phase < LOST -> d_step { expire() } }
  /* The grace after a threshold of receipts may end at any time, even with receipts in transit. But not while a false box
   * may still be found: a dealer that stays in the sum with too few honest holders can starve it (protocol 12). */
  :: d_step { phase == CHECKING && MAY_PROPOSE && (fault != DEALS_BADLY || IN(receipts, 0)) -> propose() }
#else
  :: d_step { phase < LOST -> expire() }
#endif
  /* The operator gives up an Erasure that needs one more decryptor to come back. */
  :: atomic { RULE_CERTIFIED_IS_CLOSED && timeout && phase == LOST && certified -> d_step { move(FAILED) } }
  od
}
#endif

init {
  atomic {
    if
    :: fault = 0
    :: fault = COMPLAINS
    :: fault = DEALS_BADLY
    :: fault = DEALS_FALSELY
    :: fault = STAYS_AWAY
    fi;
    run Member(0); run Member(1); run Member(2); run Member(3);
    run Network(0); run Network(1); run Network(2); run Network(3);
#if RULE_TIME_RUNS_OUT
    run Clock()
#endif
  }
  phase >= ENDED;
  unreached = WITNESS == 0 || phase != WITNESS;
  assert(unreached);
#if PATIENT
  P5_the_attempt_gives_a_result = phase == RECOVERED;
  assert(P5_the_attempt_gives_a_result);
#endif
}

ltl P5_the_attempt_ends { <> (phase >= ENDED) }
