/* See grad_terms.h. */
#include "src/fsdp/grad_terms.h"

#include "src/comm/cards/cards.h"
#include "src/comm/group.h"

static int fewer(int a, int b)
{
    return a < b ? a : b;
}

/* Return true if sums are rounded before they are sent to other hosts. */
static bool rounds(const fsdp_param_context *c, const fsdp_group *group)
{
    return c->options.set_internode_reduce_dtype && fsdp_group_spans_hosts(group);
}

bool fsdp_grad_terms_exist(const fsdp_param_context *c, const fsdp_group *group)
{
    const int ranks = fsdp_group_memory_ranks(group, c->device);
    return ranks < fsdp_group_world_size(group) && (ranks > 1 || rounds(c, group));
}

fsdp_dtype fsdp_grad_term_dtype(const fsdp_param_context *c, const fsdp_group *group)
{
    return fsdp_grad_terms_exist(c, group) && rounds(c, group) ? c->options.internode_reduce_dtype
                                                               : FSDP_DTYPE_F32;
}

/* Return true if the parts of each host are one term, whatever the number of ranks is. */
static bool is_by_host(const fsdp_param_context *c, const fsdp_group *group)
{
    return fsdp_grad_terms_exist(c, group) && rounds(c, group);
}

int fsdp_grad_block_parts(const fsdp_param_context *c, const fsdp_group *group, int leaves)
{
    const int local = fsdp_group_memory_ranks(group, c->device);
    const int parts = FSDP_SUM_BLOCK % leaves ? 1 : FSDP_SUM_BLOCK / leaves;
    return is_by_host(c, group) && parts % local ? local : parts;
}

/* Find the largest subtree that begins with part `first`, contains only parts of one host, and has
 * at most `block` parts. Return its number of parts. The last subtree of a block may be incomplete.
 * Each host has `local` parts, one after the other. */
static int subtree_parts(int ranks, int local, int block, int first)
{
    int n = 1;
    while (2 * n <= block && first % (2 * n) == 0 && n < ranks - first &&
           first / local == (fewer(first + 2 * n, ranks) - 1) / local)
        n *= 2;
    return fewer(n, ranks - first);
}

int fsdp_grad_term_parts(const fsdp_param_context *c, const fsdp_group *group, int leaves,
                         int first)
{
    const int local = fsdp_group_memory_ranks(group, c->device);
    if (!fsdp_grad_terms_exist(c, group))
        return 1;
    return is_by_host(c, group) ? local - first % local
                                : subtree_parts(fsdp_group_world_size(group), local,
                                                fsdp_grad_block_parts(c, group, leaves), first);
}

int fsdp_grad_count_terms(const fsdp_param_context *c, const fsdp_group *group, int leaves)
{
    int terms = 0;
    for (int r = 0; r < fsdp_group_world_size(group);
         r += fsdp_grad_term_parts(c, group, leaves, r))
        terms++;
    return terms;
}
