/* What a hostile coordinator can obtain from one round of the secure sum: its first attempt and the retry.
 *
 * Members 0, 1 and 2 are honest; member 3 colludes with the coordinator. All four decrypt. As in protocol/member, a member
 * is a value that receives a message, stores its next phase and answers. The coordinator chooses which member gets which
 * message when, so the runs include every loss, repetition, delay, replay and equivocation, without limit. What was signed
 * once stays known. The colluder signs everything.
 *
 * A rule is a macro, 1 unless the checker sets it to 0. assurance/model/README.md says what is left out and why that is sound.
 */
#include "rules.h"

#define N_MIN 3      /* fewest survivors: max(a + h_min, (n + a) / 2 + 1) with h_min = 2 */
#if RULE_2T_ABOVE_L_PLUS_A
#define T 3          /* of shares and of votes: (L + a) / 2 + 1 */
#else
#define T 2
#endif
#if RULE_ERASURE_QUORUM
#define Q 3          /* of reports that nothing was revealed: L + a - t + 1 */
#else
#define Q 2
#endif

/* An outcome: bits 0-3 are the survivors; SECOND marks the other one of two uploads that the colluder signed, FORGED an
 * upload of member 0 that member 0 never made. */
#define SECOND 16
#define FORGED 32
#define VOID   64
#define ERASED 128
#define NOTHING 128  /* reported by a decryptor that made no reveal */

#define IN(set, u) (((set) >> (u)) & 1)
#define SIZE(set)  (IN(set, 0) + IN(set, 1) + IN(set, 2) + IN(set, 3))
#define HONEST(set) ((set) & 7)
#define IS_SET(o)  ((o) && !((o) & (VOID | ERASED)))
/* Forged and small sets come first: they matter only in models without a rule, and are found sooner so. */
#define SETS(X) X(7|FORGED) X(11|FORGED) X(13|FORGED) X(15|FORGED) \
    X(1) X(2) X(3) X(4) X(5) X(6) X(8) X(9) X(10) X(12) \
    X(7) X(11) X(13) X(14) X(15) X(11|SECOND) X(13|SECOND) X(14|SECOND) X(15|SECOND)

/* AT(c, d) is the index of member d in attempt c. */
#define AT(c, d) (3 * (c) + (d))
byte at[3];          /* the attempt that a member is in: 0, or 1 for the retry */
byte vote[6];        /* the outcome it signed */
byte report[6];      /* the set it reported a reveal for, or NOTHING; 0 before it erased */
byte closed[6];      /* the outcome that closed the attempt for it: a set, VOID or ERASED */
byte evicted[6];     /* the dealers it saw proved false */
byte restarts = 1;   /* in all */
byte stored_vote[6], stored_report[6], stored_closed[6]; /* what a restart brings back */
byte sent[6], sent_too[6]; /* votes that left: the second is for models without a rule */
short shares[6];     /* secrets of which it revealed its share, by the bits below */

/* Secrets of honest dealers: b_u at bit u, then r_uv as dealt by u. A share of each is with the colluder. */
#define B(u)   (1 << (u))
#define R01_0  8
#define R01_1  16
#define R02_0  32
#define R02_2  64
#define R12_1  128
#define R12_2  256
#define PAIR(set, u, w, secret) ((IN(set, u) && !IN(set, w)) * (secret))
/* protocol 4.7: b_u for u in S, r_uw for u in S and w outside. */
#define DUE(set) (HONEST(set) \
    | PAIR(set, 0, 1, R01_0) | PAIR(set, 1, 0, R01_1) | PAIR(set, 0, 2, R02_0) \
    | PAIR(set, 2, 0, R02_2) | PAIR(set, 1, 2, R12_1) | PAIR(set, 2, 1, R12_2))

#define SIGNED(c, d, o) (sent[AT(c, d)] == (o) || sent_too[AT(c, d)] == (o))
#define VOTES(c, o) (1 + SIGNED(c, 0, o) + SIGNED(c, 1, o) + SIGNED(c, 2, o))
#define CERTIFIED(c, o) ((o) && VOTES(c, o) >= T)
#define OF(c, d) (CERTIFIED(c, sent[AT(c, d)]) * sent[AT(c, d)])
#define TOO(c, d) (CERTIFIED(c, sent_too[AT(c, d)]) * sent_too[AT(c, d)])

/* What a member accepts as a certificate of attempt c on o. */
#define VOTES_ELSEWHERE(c, o) ((!RULE_CONTEXT_BINDING) * (VOTES(1 - (c), o) - 1))
#define ANY_VOTES(c) (1 + (sent[AT(c, 0)] > 0) + (sent[AT(c, 1)] > 0) + (sent[AT(c, 2)] > 0))
#define CERTIFICATE(c, o) (VOTES(c, o) + VOTES_ELSEWHERE(c, o) >= T \
    || (!RULE_CERTIFICATE_THRESHOLD && VOTES(c, o) >= T - 1) \
    || (!RULE_CERTIFICATE_DISTINCT && VOTES(c, o) >= 1) \
    || (!RULE_CERTIFICATE_ONE_OUTCOME && ANY_VOTES(c) >= T) \
    || (!RULE_REVEAL_AFTER_CERTIFICATE && (o) != VOID))
#define LARGE_ENOUGH(o) (!RULE_N_MIN || SIZE(o) >= N_MIN)

/* Properties, checked whenever their variables change. All other variables here are 0 between two steps. */
bool P1_one_secret_of_a_member = true;
bool P2_reveals_follow_a_certificate = true;
bool P3_one_certificate = true;
bool P4_the_sum_is_over_the_certified = true;
bool P6_nothing_after_the_end = true;
bool P7_no_sum_beside_an_erasure = true;
bool unreached = true; /* what the checker asks for to see that it can happen */
byte o_, set_, other_, i_, was_;
short open_;

/* P3: one certificate a context; one certified set a round. P4: of uploads that were made. */
inline check_votes(c) {
  set_ = 0;
  i_ = 0;
  do
  :: i_ < 6 ->
     other_ = (i_ < 3 -> OF(c, i_) : TOO(c, i_ - 3));
     P3_one_certificate = P3_one_certificate && (!set_ || !other_ || set_ == other_);
     set_ = (other_ -> other_ : set_);
     i_++
  :: else -> break
  od;
  P4_the_sum_is_over_the_certified = !(set_ & FORGED);
  if
  :: IS_SET(set_) ->
     i_ = 0;
     do
     :: i_ < 3 ->
        P3_one_certificate = P3_one_certificate && !IS_SET(OF(1 - c, i_)) && !IS_SET(TOO(1 - c, i_));
        i_++
     :: else -> break
     od
  :: else
  fi;
  assert(P3_one_certificate);
  assert(P4_the_sum_is_over_the_certified);
  set_ = 0; other_ = 0; i_ = 0
}

/* protocol 4.9: a member that accepts it as the end of attempt c counts the colluder's report too. */
#define ERASURE(c) (1 + (report[AT(c, 0)] == NOTHING) + (report[AT(c, 1)] == NOTHING) + (report[AT(c, 2)] == NOTHING) >= Q)
#define REVEALS(c) (1 + (shares[AT(c, 0)] != 0) + (shares[AT(c, 1)] != 0) + (shares[AT(c, 2)] != 0))
inline check_erasure(c) {
  P7_no_sum_beside_an_erasure = !(ERASURE(c) && REVEALS(c) >= T);
  assert(P7_no_sum_beside_an_erasure);
  unreached = WITNESS != 3 || !(ERASURE(c) && IS_SET(OF(c, 0)));
  assert(unreached)
}

#define HAS(secret) ((open_ & (secret)) != 0)
#define E01 HAS(R01_0 | R01_1)
#define E02 HAS(R02_0 | R02_2)
#define E12 HAS(R12_1 | R12_2)
#define ENDS_WITH(c, honest) (HONEST(OF(c, 0)) == honest || HONEST(OF(c, 1)) == honest || HONEST(OF(c, 2)) == honest \
    || HONEST(TOO(c, 0)) == honest || HONEST(TOO(c, 1)) == honest || HONEST(TOO(c, 2)) == honest)
#define UNMASKED(c, honest, all) (!(all) || ENDS_WITH(c, honest))

/* P1 and P4: from t shares a secret is rebuilt; the colluder has one of each. A group's sum can be computed from
 * its b_u and its edges to the honest members outside it, and from nothing less. */
inline check_shares(c) {
#if RULE_2T_ABOVE_L_PLUS_A
  open_ = (shares[AT(c, 0)] & shares[AT(c, 1)]) | (shares[AT(c, 0)] & shares[AT(c, 2)]) |
    (shares[AT(c, 1)] & shares[AT(c, 2)]);
#else
  open_ = shares[AT(c, 0)] | shares[AT(c, 1)] | shares[AT(c, 2)];
#endif
  P1_one_secret_of_a_member = !(HAS(B(0)) && E01 && E02) && !(HAS(B(1)) && E01 && E12) && !(HAS(B(2)) && E02 && E12);
  P4_the_sum_is_over_the_certified =
    UNMASKED(c, 3, HAS(B(0)) && HAS(B(1)) && E02 && E12) &&
    UNMASKED(c, 5, HAS(B(0)) && HAS(B(2)) && E01 && E12) &&
    UNMASKED(c, 6, HAS(B(1)) && HAS(B(2)) && E01 && E02) &&
    UNMASKED(c, 7, HAS(B(0)) && HAS(B(1)) && HAS(B(2)));
  assert(P1_one_secret_of_a_member);
  assert(P4_the_sum_is_over_the_certified);
  unreached = (WITNESS != 1 || c == 0 || !(HAS(B(0)) && HAS(B(1)) && HAS(B(2)) && VOTES(0, VOID) >= T)) &&
    (WITNESS != 2 || !(HAS(B(0)) && HAS(B(1)) && E02 && E12));
  assert(unreached);
  open_ = 0
}

/* Stored and sent in one step: a crash between the two equals a message that is held back. Without the rule it is
 * sent first, and stored in a separate step. */
inline store(m) {
#if RULE_STORE_BEFORE_SENDING
  stored_vote[m] = vote[m];
  stored_report[m] = report[m];
  stored_closed[m] = closed[m]
#else
  skip
#endif
}

#define HERE AT(at[me], me)
#define SPENT (vote[HERE] && !(!RULE_VOTE_ONCE && IS_SET(vote[HERE])) && !(!RULE_VOID_EXCLUSIVE && vote[HERE] == VOID))
#define VOTING (!closed[HERE] && !(RULE_REPORT_IS_FINAL && report[HERE]))

inline send() {
  printf("member %d sends its vote on %d in attempt %d\n", me, vote[HERE], at[me]);
  if
  :: !sent[HERE] -> sent[HERE] = vote[HERE]
  :: else -> sent_too[HERE] = vote[HERE]
  fi;
  check_votes(at[me])
}

inline sign(o) {
  printf("member %d stores a vote on %d in attempt %d\n", me, o, at[me]);
  vote[HERE] = o;
  store(HERE);
#if ATTEMPTS == 2
  send()
#endif
}

/* protocol 4.6, in a member that was shown the uploads: it can't have been shown another's forged one. */
#define MAY_SIGN(o) (VOTING && !SPENT && !SIGNED(at[me], me, o) && !sent_too[HERE] && LARGE_ENOUGH(o) && \
    (!((o) & FORGED) || (me == 0 && !RULE_OWN_UPLOAD) || (me != 0 && !RULE_SHOWN_UPLOADS)))
#define SIGN(o) :: MAY_SIGN(o) -> o_ = o

/* protocol 4.7: which shares are due follows from the certified set. The attempt is closed; the rest of the phase stays. */
inline reveal(o, due) {
  printf("member %d reveals shares of %d on a certificate for %d in attempt %d\n", me, due, o, at[me]);
  P2_reveals_follow_a_certificate = CERTIFIED(at[me], o);
  P6_nothing_after_the_end = was_ != VOID && was_ != ERASED && !CERTIFIED(at[me], VOID);
  assert(P6_nothing_after_the_end);
  assert(P2_reveals_follow_a_certificate);
  shares[HERE] = shares[HERE] | (due);
  check_shares(at[me]);
  check_erasure(at[me])
}

#define ERASED_HERE (RULE_REPORT_IS_FINAL && report[HERE])
#define OPEN_FOR_CERTIFICATE (!ERASED_HERE && (!closed[HERE] || \
    (!RULE_CLOSED_IS_FINAL && (closed[HERE] == VOID || closed[HERE] == ERASED))))
#define MAY_CLOSE(o) (OPEN_FOR_CERTIFICATE && CERTIFICATE(at[me], o) && LARGE_ENOUGH(o) && \
    !(RULE_OWN_UPLOAD && me == 0 && ((o) & FORGED)))
#define CERTIFY(o) :: MAY_CLOSE(o) -> o_ = o
#define ASK(o) :: !ERASED_HERE && !RULE_DUE_FROM_CERTIFICATE && IS_SET(closed[HERE]) && SIZE(o) >= N_MIN -> o_ = o

/* A proof has t committed shares of one of the dealer's secrets that don't match its commitment. The coordinator knows the
 * shares of revealed secrets; an honest dealer's shares match. */
#define KNOWN(e) (1 + ((shares[AT(at[me], 0)] & B(e)) > 0) + ((shares[AT(at[me], 1)] & B(e)) > 0) \
    + ((shares[AT(at[me], 2)] & B(e)) > 0))
#define PROVED(e) (e == 3 || !RULE_PROOF_SHARES_COMMITTED || (!RULE_PROOF_HOLDERS && KNOWN(e) >= T - 1) \
    || (!RULE_PROOF_MISSES && KNOWN(e) >= T))
#define MAY_EVICT(e) (!ERASED_HERE && IS_SET(closed[HERE]) && IN(closed[HERE], e) && !IN(evicted[HERE], e) && PROVED(e))
#define EVICT(e) :: MAY_EVICT(e) -> o_ = e

/* protocol 4.8: a member accepts a result only over the certificate's set, without members proved false. */
#define MAY_TAKE(set) (IS_SET(closed[HERE]) && (!RULE_RESULT_FROM_CERTIFICATE || (set) == (closed[HERE] & 15) || \
    ((set) == (closed[HERE] & 7) && IN(closed[HERE], 3))))
#define RESULT(set) :: MAY_TAKE(set) -> o_ = set

proctype Member(byte me) {
  end_waiting:
  do
  :: atomic { if SETS(SIGN) fi; d_step { sign(o_); o_ = 0 } }
  :: atomic { if SETS(CERTIFY) fi;
     d_step { was_ = closed[HERE]; closed[HERE] = o_; store(HERE); reveal(o_, DUE(o_)); was_ = 0; o_ = 0 } }
  :: atomic { if SETS(ASK) fi; d_step { reveal(closed[HERE], DUE(o_)); o_ = 0 } }
  :: atomic { if EVICT(0) EVICT(1) EVICT(2) EVICT(3) fi;
     d_step {
       printf("member %d takes a proof against dealer %d\n", me, o_);
       evicted[HERE] = evicted[HERE] | HONEST(1 << o_);
       reveal(closed[HERE], DUE((closed[HERE] & 15) & ~evicted[HERE])); o_ = 0 } }
  :: atomic { if RESULT(7) RESULT(11) RESULT(13) RESULT(14) RESULT(15) RESULT(9) fi;
     d_step {
       printf("member %d takes a result over %d\n", me, o_);
       P4_the_sum_is_over_the_certified = ENDS_WITH(at[me], HONEST(o_));
       assert(P4_the_sum_is_over_the_certified); o_ = 0 } }
  :: d_step { VOTING && (!vote[HERE] || (!RULE_VOID_EXCLUSIVE && IS_SET(vote[HERE]))) && !sent_too[HERE] &&
     !SIGNED(at[me], me, VOID) -> sign(VOID) }
  :: d_step { !closed[HERE] && (CERTIFICATE(at[me], VOID) || !RULE_VOID_BY_CERTIFICATE) ->
     printf("member %d takes attempt %d for void\n", me, at[me]);
     P6_nothing_after_the_end = CERTIFIED(at[me], VOID);
     assert(P6_nothing_after_the_end);
     closed[HERE] = VOID; store(HERE) }
  :: d_step { vote[HERE] && !SIGNED(at[me], me, vote[HERE]) && !sent_too[HERE] -> send() }
  /* protocol 4.9: after the latest end, which may come at any time, it erases and reports; q reports end the attempt for others. */
#if REPORTS
  :: d_step { at[me] < REPORTS && !report[HERE] && closed[HERE] != VOID && closed[HERE] != ERASED ->
     report[HERE] = (IS_SET(closed[HERE]) && RULE_REPORT_TELLS -> closed[HERE] : NOTHING);
     printf("member %d reports %d in attempt %d\n", me, report[HERE], at[me]);
     store(HERE);
     check_erasure(at[me]) }
  :: d_step { ERASURE(at[me]) && !closed[HERE] ->
     printf("member %d takes the Erasure of attempt %d\n", me, at[me]);
     closed[HERE] = ERASED; store(HERE) }
  :: d_step { !RULE_BEHIND_IS_REFUSED && at[me] < REPORTS && IS_SET(closed[HERE]) && !report[HERE] ->
     printf("member %d is shown the opening of attempt %d again\n", me, at[me]);
     closed[HERE] = 0; store(HERE) }
#endif
#if ATTEMPTS == 2
  /* protocol 4.3: on to the retry only if it knows how the first attempt ended, or signed nothing in it. */
  :: d_step { at[me] == 0 && (closed[me] == VOID || (!vote[me] && !report[me] && !closed[me]) ||
       (!RULE_RETRY_AFTER_VOID && closed[me] != ERASED)) ->
     printf("member %d opens the retry\n", me);
     at[me] = 1 }
#endif
  /* A restart from the last stored state, which without the rule lacks some of what it sent. */
#if !RULE_STORE_BEFORE_SENDING
  :: d_step {
     printf("member %d stores what it has said\n", me);
     stored_vote[HERE] = vote[HERE]; stored_report[HERE] = report[HERE]; stored_closed[HERE] = closed[HERE] }
#endif
  :: d_step { restarts && (stored_vote[HERE] != vote[HERE] || stored_report[HERE] != report[HERE] ||
     stored_closed[HERE] != closed[HERE]) ->
     printf("member %d restarts\n", me);
     restarts--;
     vote[HERE] = stored_vote[HERE]; report[HERE] = stored_report[HERE]; closed[HERE] = stored_closed[HERE] }
  od
}

init {
  atomic { run Member(0); run Member(1); run Member(2) }
}
