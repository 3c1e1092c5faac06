/* The protocol's rules as switches: the checker sets one at a time to 0 (assurance/model/README.md; rules and sections of docs/protocol). */

/* secrecy.pml */
#ifndef RULE_2T_ABOVE_L_PLUS_A /* 5: 2t > L + a: two certificates share an honest voter. Without: t = 2 of 4. */
#define RULE_2T_ABOVE_L_PLUS_A 1
#endif
#ifndef RULE_N_MIN /* 4.6: At least n_min survivors, for signing and in a certificate. */
#define RULE_N_MIN 1
#endif
#ifndef RULE_VOTE_ONCE /* 4.6: One survivor set for each context. */
#define RULE_VOTE_ONCE 1
#endif
#ifndef RULE_VOID_EXCLUSIVE /* 4.6: VOID or a set, not both. */
#define RULE_VOID_EXCLUSIVE 1
#endif
#ifndef RULE_STORE_BEFORE_SENDING /* 4: What was signed is stored before it leaves. */
#define RULE_STORE_BEFORE_SENDING 1
#endif
#ifndef RULE_OWN_UPLOAD /* 4.6: The member's own upload is in it as it was sent. */
#define RULE_OWN_UPLOAD 1
#endif
#ifndef RULE_SHOWN_UPLOADS /* 4.6: Every other upload in it was delivered and signed. */
#define RULE_SHOWN_UPLOADS 1
#endif
#ifndef RULE_CERTIFICATE_THRESHOLD /* 4.6: t votes. Without: one less. */
#define RULE_CERTIFICATE_THRESHOLD 1
#endif
#ifndef RULE_CERTIFICATE_DISTINCT /* 4.6: The votes are of different decryptors. */
#define RULE_CERTIFICATE_DISTINCT 1
#endif
#ifndef RULE_CERTIFICATE_ONE_OUTCOME /* 4.6: The votes are on the certificate's outcome. */
#define RULE_CERTIFICATE_ONE_OUTCOME 1
#endif
#ifndef RULE_CONTEXT_BINDING /* 4.3: A vote counts in its own context only. */
#define RULE_CONTEXT_BINDING 1
#endif
#ifndef RULE_REVEAL_AFTER_CERTIFICATE /* 4.7: Shares are revealed on a certificate, not on a proposal. */
#define RULE_REVEAL_AFTER_CERTIFICATE 1
#endif
#ifndef RULE_DUE_FROM_CERTIFICATE /* 4.7: Which shares are due follows from the certified set, not from a request. */
#define RULE_DUE_FROM_CERTIFICATE 1
#endif
#ifndef RULE_PROOF_SHARES_COMMITTED /* 4.7: An eviction proof's shares are those that the dealer committed to. */
#define RULE_PROOF_SHARES_COMMITTED 1
#endif
#ifndef RULE_PROOF_HOLDERS /* 4.7: A proof has t shares, of different decryptors. */
#define RULE_PROOF_HOLDERS 1
#endif
#ifndef RULE_PROOF_MISSES /* 4.7: The secret they recover doesn't match the dealer's commitment. */
#define RULE_PROOF_MISSES 1
#endif
#ifndef RULE_RESULT_FROM_CERTIFICATE /* 4.8: A result is over the certified set, without members proved false. */
#define RULE_RESULT_FROM_CERTIFICATE 1
#endif
#ifndef RULE_VOID_BY_CERTIFICATE /* 4.9: VOID closes an attempt by certificate, not by the coordinator's word. */
#define RULE_VOID_BY_CERTIFICATE 1
#endif
#ifndef RULE_RETRY_AFTER_VOID /* 4.3: A member that signed in an attempt opens the next only when it knows the VOID. */
#define RULE_RETRY_AFTER_VOID 1
#endif
#ifndef RULE_CLOSED_IS_FINAL /* 4.9: After VOID, by votes or by erasure, no certificate is accepted. */
#define RULE_CLOSED_IS_FINAL 1
#endif
#ifndef RULE_REPORT_IS_FINAL /* 4.9: A decryptor that reported its erasure reveals no more. */
#define RULE_REPORT_IS_FINAL 1
#endif
#ifndef RULE_REPORT_TELLS /* 4.9: A report says whether its decryptor made a reveal. */
#define RULE_REPORT_TELLS 1
#endif
#ifndef RULE_BEHIND_IS_REFUSED /* 4.3: An earlier place is never opened again. */
#define RULE_BEHIND_IS_REFUSED 1
#endif
#ifndef RULE_ERASURE_QUORUM /* 4.9: q reports that nothing was revealed. Without: one less. */
#define RULE_ERASURE_QUORUM 1
#endif

/* progress.pml */
#ifndef RULE_COUNT_ONCE /* 4.6: The same vote again changes nothing. */
#define RULE_COUNT_ONCE 1
#endif
#ifndef RULE_ANSWER_AGAIN /* 4: A member that is asked again sends what it stored again. */
#define RULE_ANSWER_AGAIN 1
#endif
#ifndef RULE_TIME_RUNS_OUT /* 4.9: Phases end when their time is up. */
#define RULE_TIME_RUNS_OUT 1
#endif
#ifndef RULE_DROP_DISPUTED /* 4.5: A disputed dealer is dropped. Without: a complaint voids the attempt. */
#define RULE_DROP_DISPUTED 1
#endif
#ifndef RULE_LATE_RECEIPTS /* 4.5: A late decryptor gets its boxes after the proposal, signs and reveals. */
#define RULE_LATE_RECEIPTS 1
#endif
#ifndef RULE_DISPUTES_AMONG_SURVIVORS /* 4.5: If too few would stay, only disputes among members that can stay count. */
#define RULE_DISPUTES_AMONG_SURVIVORS 1
#endif
#ifndef RULE_EVICT /* 4.7: A dealer proved false is evicted. Without: the attempt fails. */
#define RULE_EVICT 1
#endif
#ifndef RULE_LOST_IS_CLOSED /* 4.9: The admin closes an attempt without a certificate. */
#define RULE_LOST_IS_CLOSED 1
#endif
#ifndef RULE_CERTIFIED_IS_CLOSED /* 4.9: The coordinator closes a certified attempt that can't be erased. */
#define RULE_CERTIFIED_IS_CLOSED 1
#endif
#ifndef RULE_REPORT_IN_ANY_PHASE /* 4.9: A decryptor reports whatever its phase. Without: only where it holds boxes. */
#define RULE_REPORT_IN_ANY_PHASE 1
#endif

/* spending.pml */
#ifndef RULE_ENDS_BEFORE_OPENING /* 4.3: A member opens nothing while an attempt that it took part in has no known end. */
#define RULE_ENDS_BEFORE_OPENING 1
#endif
#ifndef RULE_ENDS_BEFORE_UPLOAD /* 4.4: The same again before it stores an announcement. */
#define RULE_ENDS_BEFORE_UPLOAD 1
#endif
#ifndef RULE_LEDGER_BEFORE_OPENING /* 4.3: The ledger allows the attempt before it is opened. */
#define RULE_LEDGER_BEFORE_OPENING 1
#endif
#ifndef RULE_LEDGER_BEFORE_UPLOAD /* 4.4: And again before an announcement is stored. */
#define RULE_LEDGER_BEFORE_UPLOAD 1
#endif
#ifndef RULE_ALREADY_SUMMED /* 4.3: A step that was certified or lost is not opened again, also where the history shown hides that. */
#define RULE_ALREADY_SUMMED 1
#endif
#ifndef RULE_SPENT_IS_FINAL /* 7.3: A spent reservation uploads no other sum. */
#define RULE_SPENT_IS_FINAL 1
#endif
#ifndef RULE_SUMMED_ELSEWHERE /* 7.3: A reservation is not opened once a sum of another run holds one of its records. */
#define RULE_SUMMED_ELSEWHERE 1
#endif
#ifndef RULE_RESERVE_FREE_RECORDS /* 7.2: A reservation takes records that no other one holds, unless it is free. */
#define RULE_RESERVE_FREE_RECORDS 1
#endif
#ifndef RULE_GIVEN_UP_FOR_GOOD /* 7.3: A run that was given up is not opened, and nothing more is announced in it. */
#define RULE_GIVEN_UP_FOR_GOOD 1
#endif
#ifndef RULE_VOID_ALONE_FREES_NOTHING /* 7.3: Records are free only after their run was given up. */
#define RULE_VOID_ALONE_FREES_NOTHING 1
#endif
#ifndef RULE_EVERY_CONTEXT /* 7.3: There is a proof for every sum context. Without: one is enough. */
#define RULE_EVERY_CONTEXT 1
#endif
#ifndef RULE_TIME_FREES_NOTHING /* 7.3: The latest end and silence free nothing. */
#define RULE_TIME_FREES_NOTHING 1
#endif
#ifndef RULE_LINKS_FREE_NOTHING /* 7.3: A link of a history that is shown frees nothing. */
#define RULE_LINKS_FREE_NOTHING 1
#endif
#ifndef RULE_PROOF_OF_ITS_CONTEXT /* 7.3: A proof is checked under its own context. Without: another's VOID is enough. */
#define RULE_PROOF_OF_ITS_CONTEXT 1
#endif
#ifndef RULE_A_SET_WITH_IT_SPENDS /* 7.3: A certificate of a set with the member spends, and frees nothing. */
#define RULE_A_SET_WITH_IT_SPENDS 1
#endif
#ifndef RULE_LOST_SPENDS /* 7.3: A Lost spends where the member announced, and frees nothing. */
#define RULE_LOST_SPENDS 1
#endif
#ifndef RULE_SUMS_ALONE_SPEND /* 7.3: A count spends nothing. */
#define RULE_SUMS_ALONE_SPEND 1
#endif
#ifndef RULE_COUNTS_HOLD_NOTHING /* 7.3: Records are free whatever became of the counts. Without: a count's end is awaited too. */
#define RULE_COUNTS_HOLD_NOTHING 1
#endif
#ifndef RULE_THREE_COUNTS /* 7.3: Records that three runs count are free for no further run that counts. */
#define RULE_THREE_COUNTS 1
#endif
#ifndef RULE_COUNTED_FROM_UPLOAD /* 7.3: A run counts from the announcement on. Without: from a certificate on. */
#define RULE_COUNTED_FROM_UPLOAD 1
#endif

/* pairing.pml */
#ifndef RULE_PAIRING_STORED_FIRST /* 4: A Pairing is stored before it leaves. */
#define RULE_PAIRING_STORED_FIRST 1
#endif
#ifndef RULE_PAIRING_KEPT /* 4.2: Cards of the manifest that it paired under are answered with the Pairing that was sent. Without: with a new one. */
#define RULE_PAIRING_KEPT 1
#endif
#ifndef RULE_PAIRING_SENT_AGAIN /* 4.2: They are answered at all. Without: a Pairing is sent once. */
#define RULE_PAIRING_SENT_AGAIN 1
#endif
#ifndef RULE_FRESH_FOR_EACH /* 4.2: Each encapsulation has fresh randomness. Without: one for all that a member encapsulates to. */
#define RULE_FRESH_FOR_EACH 1
#endif
#ifndef RULE_CARD_SIGNED /* 4.2: Every card shown is signed by its member. */
#define RULE_CARD_SIGNED 1
#endif
#ifndef RULE_OWN_CARD /* 4.2: The member's own card is shown as it was sent. */
#define RULE_OWN_CARD 1
#endif
#ifndef RULE_KEY_OF_ITS_CARD /* 4.2: An ML-KEM key has its card's hash. */
#define RULE_KEY_OF_ITS_CARD 1
#endif
#ifndef RULE_CIPHERTEXT_SIGNED /* 4.2: A ciphertext's path leads to a root that was signed. */
#define RULE_CIPHERTEXT_SIGNED 1
#endif
#ifndef RULE_CIPHERTEXT_OF_ITS_SENDER /* 4.2: It was signed by the member that encapsulates. Without: by any member of the manifest. */
#define RULE_CIPHERTEXT_OF_ITS_SENDER 1
#endif
#ifndef RULE_CIPHERTEXT_OF_ITS_MANIFEST /* 4.2: It was signed for the manifest that the member paired under last. */
#define RULE_CIPHERTEXT_OF_ITS_MANIFEST 1
#endif
#ifndef RULE_CIPHERTEXT_OF_ITS_PLACE /* 4.2: Its path is that of the member's place among those that its sender encapsulates to. */
#define RULE_CIPHERTEXT_OF_ITS_PLACE 1
#endif
#ifndef RULE_EVERY_CIPHERTEXT /* 4.2: They are of exactly the members that encapsulate to it. Without: one may be missing. */
#define RULE_EVERY_CIPHERTEXT 1
#endif
#ifndef RULE_FORMER_MEMBERS /* 4.2: A further manifest's members are some of those before. */
#define RULE_FORMER_MEMBERS 1
#endif
#ifndef RULE_CARDS_UNCHANGED /* 4.2: Every card that was shown before is unchanged. */
#define RULE_CARDS_UNCHANGED 1
#endif
#ifndef RULE_THIRD_AT_MOST /* 4.2: A member pairs under three manifests at most. */
#define RULE_THIRD_AT_MOST 1
#endif
#ifndef RULE_READY_IS_FINAL /* 4.2: A member that holds root keys takes no other manifest of the cohort. */
#define RULE_READY_IS_FINAL 1
#endif
#ifndef RULE_ERASED_WITH_KEYS /* 4.2: Private keys and secrets go in the write that stores the root keys. Without: in a later one. */
#define RULE_ERASED_WITH_KEYS 1
#endif
#ifndef RULE_FORMER_SECRETS /* 4.2: So do the secrets encapsulated under earlier manifests. */
#define RULE_FORMER_SECRETS 1
#endif
#ifndef RULE_LAPSE /* 4.2: A member that is not Ready in time lapses. Without: it waits for ever. */
#define RULE_LAPSE 1
#endif
#ifndef RULE_LAPSE_ERASES /* 4.2: It erases its private keys and secrets. */
#define RULE_LAPSE_ERASES 1
#endif
#ifndef RULE_CLOCK_FIRST /* 4.2: It does so before it looks at any message. */
#define RULE_CLOCK_FIRST 1
#endif
#ifndef RULE_LAPSED_IS_FINAL /* 4.2: It takes no manifest of the cohort any more. */
#define RULE_LAPSED_IS_FINAL 1
#endif
#ifndef RULE_ALL_PAIRED_FIRST /* 4.2: No ciphertext is handed out before all have paired. Without: once its sender has. */
#define RULE_ALL_PAIRED_FIRST 1
#endif
#ifndef RULE_NEWEST_PAIRINGS /* 4.2: The coordinator counts Pairings of the newest manifest only. */
#define RULE_NEWEST_PAIRINGS 1
#endif
#ifndef RULE_WINDOW_ENDS /* 4.2: A window ends though not all have paired. */
#define RULE_WINDOW_ENDS 1
#endif
#ifndef RULE_LEFT_OUT /* 4.2: Who has not paired by then is left out of the next manifest. Without: the same window again. */
#define RULE_LEFT_OUT 1
#endif
#ifndef RULE_NEXT_CARDS /* 4.2: A member that has paired takes Cards of a manifest of fewer. */
#define RULE_NEXT_CARDS 1
#endif
#ifndef RULE_TIME_FOR_THREE /* 4.2: A member's keys last for three windows after the cards. Without: for two. */
#define RULE_TIME_FOR_THREE 1
#endif
