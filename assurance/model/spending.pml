/* What a hostile coordinator can obtain of one record over several runs: protocol 7.3, with the checks of 4.3 and 4.4 that spending rests on.
 *
 * One honest member, whose ledger this is, and one of its records. The coordinator names runs, opens contexts of any run in any cohort, several at
 * once, lets each end as it likes, and shows, withholds or delays every end. The owner gives runs up at any moment, and the
 * admin signs a Lost for any context. How one attempt may end is taken from secrecy.pml: a context has at most one certificate
 * (P3), and no sum is opened beside an Erasure (P7).
 *
 * A rule is a macro, 1 unless the checker sets it to 0. assurance/model/README.md says what is left out and why that is sound.
 */
#include "rules.h"

#define COUNTS_MAX 3

#define COUNT 1
#define SUM   2
byte step[4], of_run[4];     /* of each context, in the order of its opening */
bool announced[4];        /* the member stored its announcement */
byte contexts, runs;      /* opened; answered with a yes */

/* How a context ends in truth. WITH is a certificate of a set that holds the member: its sum may be opened, or an Erasure may yet exclude that. */
#define WITH    1
#define WITHOUT 2
#define VOID    3
#define ERASED  4
#define LOST    5         /* only ever what the member knows: the admin's word, true or not */
byte truth[4], known[4];  /* 0 before an end; `known` is the end that the member accepted */

bool plain[4];            /* the run's study withholds no classes, so nothing is counted */
bool given_up[4], freed[4];

bool S1_one_sum_of_a_record = true;
bool S2_three_runs_count_a_record = true;
bool S3_a_free_record_is_in_no_open_sum = true;
bool S4_a_count_spends_nothing = true;
bool S5_a_run_counts_once = true;
bool S6_a_run_that_ended_is_free = true;
bool unreached = true; /* what the checker asks for to see that it can happen */
byte c_, r_;

#define ANY(P, x)  (P(0, x) || P(1, x) || P(2, x) || P(3, x))
#define SOME(P, x) (P(0, x) || P(1, x) || P(2, x) || P(3, x)) /* where P itself uses ANY: a macro is not expanded within itself */
#define HOW_MANY(P, x) (P(0, x) + P(1, x) + P(2, x) + P(3, x))
#define OF(c, r)   ((c) < contexts && of_run[c] == (r))
#define SENT(c, r) (OF(c, r) && announced[c])

/* What the ledger says, protocol 7.3. */
#define SPENDS(c, r) (SENT(c, r) && (step[c] == SUM || !RULE_SUMS_ALONE_SPEND) && \
    ((known[c] == WITH && RULE_A_SET_WITH_IT_SPENDS) || (known[c] == LOST && RULE_LOST_SPENDS)))
#define SPENT(r) ANY(SPENDS, r)
#define SOME_VOID (truth[0] == VOID || truth[1] == VOID || truth[2] == VOID || truth[3] == VOID)
#define PROVED(c) (known[c] == VOID || known[c] == ERASED || known[c] == WITHOUT)
#define ACCEPTED(c) (PROVED(c) || (!RULE_A_SET_WITH_IT_SPENDS && known[c] == WITH) || (!RULE_LOST_SPENDS && known[c] == LOST) || \
    !RULE_TIME_FREES_NOTHING || (!RULE_LINKS_FREE_NOTHING && (c) + 1 < contexts) || (!RULE_PROOF_OF_ITS_CONTEXT && SOME_VOID))
#define HOLDS(c, r) (SENT(c, r) && (step[c] == SUM || !RULE_COUNTS_HOLD_NOTHING))
#define HELD(c, r) (HOLDS(c, r) && !ACCEPTED(c))
#define LET_GO(c, r) (HOLDS(c, r) && ACCEPTED(c))
#define ENDED(r) (!ANY(HELD, r) || (!RULE_EVERY_CONTEXT && ANY(LET_GO, r)))
#define MAY_BE_FREE(r) ((r) < runs && ENDED(r) && !SPENT(r) && (given_up[r] || (!RULE_VOID_ALONE_FREES_NOTHING && ANY(LET_GO, r))))

/* A count counts from the announcement on, unless one of the three proofs is there. */
#define COUNTS(c, r) (SENT(c, r) && step[c] == COUNT && (RULE_COUNTED_FROM_UPLOAD -> !PROVED(c) : known[c] == WITH))
#define COUNTED (ANY(COUNTS, 0) + ANY(COUNTS, 1) + ANY(COUNTS, 2) + ANY(COUNTS, 3))

/* A member gives up by itself once it can't be in a sum of the run. */
#define LEFT_OUT(c, r) (OF(c, r) && (known[c] == WITHOUT || (known[c] == LOST && step[c] == COUNT)))

#define UNENDED(c, own) ((c) < contexts && (c) != (own) && announced[c] && !known[c])
#define SAME_STEP(c, own) ((c) < contexts && (c) != (own) && of_run[c] == of_run[own] && step[c] == step[own] && \
    (known[c] == WITH || known[c] == WITHOUT || known[c] == LOST))
#define SPENT_BY(q, r) ((q) != (r) && (q) < runs && SPENT(q))
#define HISTORY_ALLOWS(c) !(RULE_ALREADY_SUMMED && ANY(SAME_STEP, c))
#define LEDGER_ALLOWS(c) (!(RULE_GIVEN_UP_FOR_GOOD && given_up[of_run[c]]) && !(RULE_SUMMED_ELSEWHERE && SOME(SPENT_BY, of_run[c])) && \
    !(RULE_SPENT_IS_FINAL && step[c] == SUM && SPENT(of_run[c])))

/* The properties. In truth a record is in a sum, or counted, where its member is in the certified set and no Erasure ended it. */
#define IN_SET(c, s) ((c) < contexts && announced[c] && step[c] == (s) && truth[c] == WITH)
#define COUNTED_IN(c, r) (IN_SET(c, COUNT) && of_run[c] == (r))
#define STILL_IN(c, r) (SENT(c, r) && step[c] == SUM && (truth[c] == 0 || truth[c] == WITH))
#define BY_A_SUM(c, r) (SENT(c, r) && step[c] == SUM && (known[c] == WITH || known[c] == LOST))
#define UNPROVED_SUM(c, r) (SENT(c, r) && step[c] == SUM && !PROVED(c))

/* In one durable write with what was learned: who gives up, and whose records are free. */
inline settle() {
  r_ = 0;
  do
  :: r_ < runs ->
     given_up[r_] = given_up[r_] || (!SPENT(r_) && ANY(LEFT_OUT, r_));
     freed[r_] = freed[r_] || MAY_BE_FREE(r_);
     S3_a_free_record_is_in_no_open_sum = !(freed[r_] && ANY(STILL_IN, r_));
     S4_a_count_spends_nothing = !SPENT(r_) || ANY(BY_A_SUM, r_);
     S5_a_run_counts_once = HOW_MANY(COUNTED_IN, r_) <= 1;
     S6_a_run_that_ended_is_free = !given_up[r_] || freed[r_] || ANY(UNPROVED_SUM, r_);
     assert(S4_a_count_spends_nothing);
     assert(S3_a_free_record_is_in_no_open_sum);
     assert(S5_a_run_counts_once);
     assert(S6_a_run_that_ended_is_free);
     r_++
  :: else -> break
  od;
  r_ = 0;
  S1_one_sum_of_a_record = HOW_MANY(IN_SET, SUM) <= 1;
  S2_three_runs_count_a_record =
    ANY(COUNTED_IN, 0) + ANY(COUNTED_IN, 1) + ANY(COUNTED_IN, 2) + ANY(COUNTED_IN, 3) <= COUNTS_MAX;
  assert(S1_one_sum_of_a_record);
  assert(S2_three_runs_count_a_record);
  unreached = (WITNESS != 1 || !(HOW_MANY(IN_SET, SUM) == 1 && ANY(COUNTED_IN, 0) && ANY(COUNTED_IN, 1) && ANY(COUNTED_IN, 2))) &&
    (WITNESS != 2 || !(known[0] == ERASED && step[0] == SUM && freed[0] && truth[1] == WITH && of_run[1] == 1)) &&
    (WITNESS != 3 || !(known[0] == VOID && step[0] == SUM && truth[1] == WITH && of_run[1] == 0 && step[1] == SUM)) &&
    (WITNESS != 4 || !(known[0] == LOST && truth[0] == ERASED && SPENT(0)));
  assert(unreached)
}

/* protocol 7.2: a yes takes records that no reservation holds unless it is free, and, to be counted, that fewer than three runs count. */
#define UNFREE(r, x) ((r) < runs && !freed[r])
#define MAY_ANSWER (runs < RUNS && !(RULE_RESERVE_FREE_RECORDS && ANY(UNFREE, 0)))
#define ENOUGH_COUNTED (RULE_THREE_COUNTS && COUNTED >= COUNTS_MAX)

inline open(r, s) {
  of_run[contexts] = r; step[contexts] = s;
  if
  :: !(RULE_ENDS_BEFORE_OPENING && ANY(UNENDED, contexts)) && HISTORY_ALLOWS(contexts) &&
     (!RULE_LEDGER_BEFORE_OPENING || LEDGER_ALLOWS(contexts)) ->
     printf("the member opens context %d of run %d, step %d\n", contexts, r, s);
     contexts++;
     settle()
  :: else -> of_run[contexts] = 0; step[contexts] = 0
  fi
}

#define MAY_ANNOUNCE(c) ((c) < contexts && !announced[c] && !known[c] && !(RULE_ENDS_BEFORE_UPLOAD && ANY(UNENDED, c)) && \
    HISTORY_ALLOWS(c) && (!RULE_LEDGER_BEFORE_UPLOAD || LEDGER_ALLOWS(c)))

inline finish(c, how) {
  printf("the context %d ends by %d\n", c, how);
  truth[c] = how;
  settle()
}

inline learn(c, how) {
  printf("the member is shown end %d of context %d\n", how, c);
  known[c] = how;
  settle()
}

/* protocol 4.9: the first end stands; only a certificate of a set with it gives way, to an Erasure or a Lost. */
#define OPEN_END(c) ((c) < contexts && (!known[c] || known[c] == WITH))
#define CONTEXT(c) \
  :: d_step { MAY_ANNOUNCE(c) -> printf("the member announces its upload in context %d\n", c); announced[c] = true; settle() } \
  :: d_step { (c) < contexts && !truth[c] && announced[c] -> finish(c, WITH) } \
  :: d_step { (c) < contexts && !truth[c] -> finish(c, WITHOUT) } \
  :: d_step { (c) < contexts && !truth[c] && announced[c] -> finish(c, VOID) } \
  :: d_step { truth[c] == WITH -> finish(c, ERASED) } \
  :: d_step { !known[c] && (truth[c] == WITH || truth[c] == WITHOUT || truth[c] == VOID) -> learn(c, truth[c]) } \
  :: d_step { OPEN_END(c) && truth[c] == ERASED -> learn(c, ERASED) } \
  :: d_step { OPEN_END(c) && announced[c] -> learn(c, LOST) }
#define RUN(r) \
  :: d_step { (r) < runs && contexts < CONTEXTS && COUNTING && !plain[r] -> open(r, COUNT) } \
  :: d_step { (r) < runs && contexts < CONTEXTS -> open(r, SUM) } \
  :: d_step { (r) < runs && !given_up[r] && !SPENT(r) -> printf("the owner gives up run %d\n", r); given_up[r] = true; settle() }

active proctype Play() {
  end_waiting:
  do
  :: d_step { MAY_ANSWER -> printf("the member answers run %d\n", runs); plain[runs] = ENOUGH_COUNTED; runs++; settle() }
  CONTEXT(0)
  CONTEXT(1)
  CONTEXT(2)
  CONTEXT(3)
  RUN(0)
  RUN(1)
  RUN(2)
  RUN(3)
  od
}
