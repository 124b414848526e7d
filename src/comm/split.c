/* Splits a group into groups of some of its ranks, as MPI_Comm_split does.
 *
 * A group that was split off uses the world's control block. So its failures are failures of the
 * world, and messages contain world ranks. The group has its own scratch buffer, which is a part of
 * a buffer of its parent. It also has its own transport state, so that only its ranks share the
 * memory of its buffers. */
#include <stdlib.h>

#include "src/base/alloc.h"
#include "src/comm/agree.h"
#include "src/comm/group_testing.h"
#include "src/comm/phase.h"

enum {
    CHILD_BITS = 4, /* a group can be split at most 15 times, the largest 4-bit number */
    MAX_CHILDREN = (1 << CHILD_BITS) - 1
};

typedef struct choice {
    int color, key;
    int rank; /* the rank in the parent */
} choice;

static int by_color_key_rank(const void *a, const void *b)
{
    const choice *x = a, *y = b;
    if (x->color != y->color)
        return x->color < y->color ? -1 : 1;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->rank < y->rank ? -1 : 1;
}

static int run_length(const choice *choices, int n)
{
    int length = 1;
    while (length < n && choices[length].color == choices[0].color)
        length++;
    return length;
}

static size_t scratch_bytes(int ranks)
{
    return fsdp_phase_lanes_bytes(ranks) + (size_t)ranks * FSDP_SCRATCH_SLOT_BYTES;
}

/* Where this rank's new group is, in the sorted choices and in memory. The new group consists of
 * the ranks that made choices[first] to choices[first + ranks - 1]. `ranks` is 0 if this rank is in
 * no new group. One buffer of `total` bytes contains the scratch buffers of all new groups. In this
 * buffer, the scratch buffer of this rank's group begins at `offset`. */
typedef struct place {
    int first, ranks;
    size_t offset, total;
} place;

static place find_place(const choice *choices, int n, int rank)
{
    place p = {0};
    for (int i = 0, length; i < n; i += length) {
        length = run_length(choices + i, n - i);
        if (choices[i].color < 0)
            continue;
        bool alone = length == 1;
        for (int k = i; k < i + length; k++)
            if (choices[k].rank == rank)
                p = (place){.first = i, .ranks = length, .offset = p.total, .total = p.total};
        p.total += alone ? 0 : scratch_bytes(length);
    }
    return p;
}

/* Create the new group, except for what it must share with its peers. A group of one rank shares
 * nothing. */
static fsdp_status fill_group(fsdp_group *parent, const choice *mine, const place *p,
                              fsdp_group **out)
{
    if (p->ranks == 1)
        return fsdp_comm_local.open(NULL, out);
    fsdp_group *g = fsdp_calloc(1, sizeof *g);
    if (!g)
        return FSDP_ERR_NOMEM;
    g->members = fsdp_calloc((size_t)p->ranks, sizeof *g->members);
    if (!g->members) {
        fsdp_free(g);
        return FSDP_ERR_NOMEM;
    }
    for (int r = 0; r < p->ranks; r++) {
        g->members[r] = fsdp_group_world_rank(parent, mine[r].rank);
        if (mine[r].rank == parent->rank)
            g->rank = r;
    }
    g->world_size = p->ranks;
    g->ranks_per_host = parent->ranks_per_host;
    for (int r = 0; r < p->ranks; r++) {
        g->local_rank += r < g->rank && fsdp_group_is_here(g, r);
        g->local_world_size += fsdp_group_is_here(g, r);
    }
    g->ops = parent->ops;
    g->refs = 1;
    g->control = parent->control;
    g->heartbeat = parent->heartbeat; /* valid while `home` exists: `home` keeps the parent alive */
    g->timeout_ns = parent->timeout_ns;
    g->stall_s = parent->stall_s;
    g->spin_ns = parent->spin_ns;
    g->futex_private = parent->futex_private;
    fsdp_group_share_hooks(g, parent);
    g->id = (parent->id << CHILD_BITS) + parent->n_split;
    g->next_buffer = (g->id << FSDP_BUFFER_BITS) + 1;
    *out = g;
    return FSDP_OK;
}

/* Use the part of `home` that begins at `offset` as the scratch buffer of g. g then owns `home`. */
static fsdp_status adopt_scratch(fsdp_group *g, fsdp_shared_buffer *home, size_t offset)
{
    unsigned char *base = (unsigned char *)fsdp_shared_buffer_data(home) + offset;
    g->home = home;
    g->scratch.lanes = (fsdp_phase_lane *)(void *)base;
    g->scratch.data = base + fsdp_phase_lanes_bytes(g->world_size);
    g->scratch.bytes = (size_t)g->world_size * FSDP_SCRATCH_SLOT_BYTES;
    g->scratch.number = g->id << FSDP_BUFFER_BITS;
    return fsdp_shared_buffer_link(g, &g->scratch);
}

static fsdp_status split_by_choices(fsdp_group *parent, const choice *choices, fsdp_group **out)
{
    const place p = find_place(choices, parent->world_size, parent->rank);
    fsdp_shared_buffer *home = NULL;
    fsdp_group *g = NULL;
    FSDP_TRY(fsdp_shared_buffer_create(parent, p.total, &home));
    fsdp_status status = p.ranks ? fill_group(parent, choices + p.first, &p, &g) : FSDP_OK;
    status = fsdp_agree(parent, status);
    fsdp_group *many = p.ranks > 1 ? g : NULL;
    if (status == FSDP_OK && many)
        status = adopt_scratch(many, home, p.offset);
    else
        fsdp_shared_buffer_destroy(home);
    if (status != FSDP_OK)
        fsdp_group_abort(parent, status);
    if (status == FSDP_OK && parent->ops->connect)
        status = parent->ops->connect(parent, many);
    if (status == FSDP_OK) {
        *out = g;
        return FSDP_OK;
    }
    fsdp_destroy_process_group(g);
    return status;
}

/* Return an error if `parent` has been split too often, or if it is the result of too many nested
 * splits. All ranks of `parent` have the same n_split and id, so either all of them get the error
 * or none does. */
static fsdp_status check_depth(const fsdp_group *parent)
{
    const uint32_t limit = 1u << (32 - FSDP_BUFFER_BITS - CHILD_BITS);
    if (parent->n_split == MAX_CHILDREN || parent->id >= limit)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "split: a group is split at most %d times, and %d deep", MAX_CHILDREN,
                          (32 - FSDP_BUFFER_BITS) / CHILD_BITS);
    return FSDP_OK;
}

fsdp_status fsdp_group_split(fsdp_group *parent, int color, int key, fsdp_group **group)
{
    *group = NULL;
    if (parent->world_size == 1)
        return color < 0 ? FSDP_OK : fsdp_comm_local.open(NULL, group);
    if (parent->ops->without_peers)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "split: a plan does not know its ranks' colors");
    FSDP_TRY(check_depth(parent));
    parent->n_split++;
    const choice own = {.color = color < 0 ? -1 : color, .key = key, .rank = parent->rank};
    choice *all = fsdp_calloc((size_t)parent->world_size, sizeof *all);
    fsdp_status status = fsdp_agree(parent, all ? FSDP_OK : FSDP_ERR_NOMEM);
    if (status == FSDP_OK)
        status = fsdp_all_gather(parent, &own, sizeof own, all);
    if (status == FSDP_OK) {
        qsort(all, (size_t)parent->world_size, sizeof *all, by_color_key_rank);
        status = split_by_choices(parent, all, group);
    }
    fsdp_free(all);
    return status;
}
