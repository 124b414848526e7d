/* Which gradients are added up inside a host before they cross to other hosts. The same happens
 * with cards: the ranks that share the memory of a card (fsdp_group_memory_ranks()) add up their
 * gradients first. So for ranks on cards, read "card" for "host" in this file. But sums that go to
 * another card of the same host are never rounded.
 *
 * Note [Sums of a host]. The ranks of a host share the memory of a buffer, so they can add up their
 * parts before anything is sent. Then one sum crosses the network instead of the part of each rank.
 * The order of additions must stay that of Note [Same bits at any world size] in grad_sums.h. So a
 * host adds up parts only if they form a subtree of the binary tree in that note. Such parts are a
 * term. If a host has 1, 2 or 4 ranks, each host has one term. A host of 8 ranks has two terms,
 * because it has two blocks.
 * If hosts have 3 ranks, the first host has the terms {0, 1} and {2}, and the second host has {3}
 * and {4, 5}.
 *
 * If options.set_internode_reduce_dtype is true, the parts of each host are one term, whatever the
 * number of ranks is, and the sums are rounded to options.internode_reduce_dtype. The bits of the
 * result may then differ from those of the same number of ranks on one host. Sums of the reader's
 * own host are rounded, too. So replicas on different hosts get equal sums.
 *
 * Ranks write their parts in a WRITE phase. A REWRITE phase follows. In the REWRITE phase, the rank
 * with local rank L adds up the elements that will be read by the ranks with local rank L of all
 * hosts. It stores each sum in place of the first part of its term. These sums are sent to the
 * ranks with local rank L of the other hosts. In the READ phase, ranks add the terms. If no term
 * has several parts and nothing is rounded, there is no REWRITE phase: the parts themselves are
 * sent when they are posted. Tables (Note [Gradients by row] in grad_rows.h) always cross as they
 * are.
 *
 * A sum that is rounded to bfloat16 needs only the first half of the memory of the float32 elements
 * that it replaces. The elements of each run of a slice are stored one after the other, from the
 * beginning of the run. */
#pragma once
#include "src/fsdp/param_context.h"

enum {
    FSDP_SUM_BLOCK = 4 /* Note [Same bits at any world size] in grad_sums.h */
};

/* Return true if a buffer of `group` has a REWRITE phase, in which each host adds up or rounds the
 * parts of its ranks before it sends them to other hosts. */
bool fsdp_grad_terms_exist(const fsdp_param_context *c, const fsdp_group *group);
/* Return the number of parts that form a block. `leaves` is the number of micro-batches of a part.
 */
int fsdp_grad_block_parts(const fsdp_param_context *c, const fsdp_group *group, int leaves);
/* Return the number of parts of the term whose first part is that of rank `first`. */
int fsdp_grad_term_parts(const fsdp_param_context *c, const fsdp_group *group, int leaves,
                         int first);
/* Return the number of terms of all hosts. */
int fsdp_grad_count_terms(const fsdp_param_context *c, const fsdp_group *group, int leaves);
/* Return the dtype of the sums of terms. */
fsdp_dtype fsdp_grad_term_dtype(const fsdp_param_context *c, const fsdp_group *group);
