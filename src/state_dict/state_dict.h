/* Inside of state dicts. */
#pragma once
#include <fsdp/state_dict.h>

#include "src/base/arena.h"
#include "src/dcp/dcp_writer.h"
#include "src/torchfile/pickle_writer.h"
#include "src/torchfile/pickle_reader.h"

struct fsdp_state_dict {
    fsdp_arena arena; /* names, keys and values */
    fsdp_state_entry *entries;
    size_t n, cap;
    size_t *slots; /* [n_slots] index + 1 into entries by hash of the fqn, 0: free */
    size_t n_slots;
    const char *companion; /* of the plan that is made of it (dcp_plan.h); static */
};

/* Path of an item as text, e.g. {{"state"}, {fqn}, {"step"}} and "state.<fqn>.step". */
char *fsdp_state_keys_join(const fsdp_state_key *keys, int n_keys); /* the caller's; or NULL */

/* The options, or defaults for NULL. */
const fsdp_state_dict_options *fsdp_state_options(const fsdp_state_dict_options *options);
int fsdp_state_rank(const fsdp_state_dict_options *options);
/* FSDP_ERR_INVALID for what cannot be asked of a state dict that one gets. */
FSDP_MUST_CHECK fsdp_status fsdp_state_check_get(const fsdp_state_dict_options *options);

/* Does this parameter name belong to what the options ask for? *shown is its name there: a part of
 * `name`. */
bool fsdp_state_name(const fsdp_state_dict_options *options, const char *name,
                     const fsdp_parameter *parameter, const char **shown);
/* FSDP_ERR_NOT_FOUND if options->submodule is no module. */
FSDP_MUST_CHECK fsdp_status fsdp_state_check_submodule(fsdp_module *module,
                                                       const fsdp_state_dict_options *options);
/* What the options make of a sharded dict, which was got with `status`: itself or, with
 * full_state_dict, a whole one; then it is gone afterwards, also on failure, and this is
 * collective. */
FSDP_MUST_CHECK fsdp_status fsdp_state_hand_out(fsdp_status status, fsdp_state_dict *sharded,
                                                const fsdp_state_dict_options *options,
                                                fsdp_state_dict **dict);

/* Put "param_groups.<i>.initial_lr" for each group of an optimizer's nested dict: torch's
 * schedulers leave it there, and a script that has one asks a checkpoint for it. */
FSDP_MUST_CHECK fsdp_status fsdp_state_put_initial_lr(fsdp_state_dict *optim, int n_groups,
                                                      double base_lr);

/* Does a state dict of this optimizer say how many steps it took? torch's SGD counts none. */
bool fsdp_state_counts_steps(const fsdp_optimizer *optimizer);

/* Values on their way into tensors: planned and checked first, copied once all ranks agree. */
typedef struct fsdp_state_copy {
    fsdp_tensor *to;   /* borrowed: a local tensor */
    fsdp_tensor *from; /* borrowed; NULL on ranks that get it from rank 0 */
    const char *name;  /* borrowed, for messages */
} fsdp_state_copy;

typedef struct fsdp_state_copies {
    fsdp_state_copy *items;
    size_t n, cap;
} fsdp_state_copies;

/* FSDP_ERR_INVALID if `from` (which may be NULL) is neither whole nor what `to` is here. */
FSDP_MUST_CHECK fsdp_status fsdp_state_copies_add(fsdp_state_copies *copies, const char *name,
                                                  fsdp_tensor *to, fsdp_tensor *from);
/* Collective: the same tensors in the same order on all ranks. If it fails on one, it does on all.
 */
FSDP_MUST_CHECK fsdp_status fsdp_state_copies_run(const fsdp_state_copies *copies,
                                                  const fsdp_state_dict_options *options);
void fsdp_state_copies_fini(fsdp_state_copies *copies);

/* Whence a tensor's values come in place of it; with what its read() needs behind it. */
typedef struct fsdp_state_source fsdp_state_source;
struct fsdp_state_source {
    /* As fsdp_dcp_tensor's; `source` is this one. */
    fsdp_status (*read)(void *source, uint64_t offset, void *out, size_t bytes);
    struct fsdp_snapshot_part *part;
    struct fsdp_async_save *save;
};
/* What fsdp_dcp_save() writes: entry i of the plan is item i. `sources` [count], which outlive the
 * plan; NULL: the tensors themselves, as they are when it is written. */
FSDP_MUST_CHECK fsdp_status fsdp_state_dict_plan(const fsdp_state_dict *dict,
                                                 fsdp_state_source *sources, fsdp_dcp_plan **plan);

/* fsdp_dcp_save() to any place. `mine` is what this rank's preparations returned; `dict` is not
 * looked at if they failed. */
FSDP_MUST_CHECK fsdp_status fsdp_state_dict_save(fsdp_status mine, const fsdp_state_dict *dict,
                                                 const fsdp_group_place *place, fsdp_group *group);
/* fsdp_torch_save() by this rank alone, of its own parts as they are. */
FSDP_MUST_CHECK fsdp_status fsdp_state_dict_write_parts(const fsdp_state_dict *dict,
                                                        const char *path);

/* fsdp_torch_load_into() of what the file has: the rest of `dict` stays as it is. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_load_partly(fsdp_state_dict *dict, const char *path,
                                                   fsdp_group *group);

/* What fsdp_local_save() puts beside the parts: "rank", "world_size" and {"offsets": {fqn: tuple}}.
 */
#define FSDP_LOCAL_SHARDS "local_shards"
enum {
    FSDP_LOCAL_MAX_RANKS = 1 << 20
};

/* A pickle's value as a plain one, in `arena`; *known is false if it is none, or nested too deeply.
 * FSDP_ERR_FORMAT if all that the arena holds is more than any checkpoint needs. */
FSDP_MUST_CHECK fsdp_status fsdp_state_read_plain(const fsdp_pickle_value *from, fsdp_arena *arena,
                                                  fsdp_plain *to, bool *known);

/* The value as the pickle's next one. */
void fsdp_state_write_plain(fsdp_pickle_writer *w, const fsdp_plain *value);

/* Writes the values of tensor `to`, item `i` of the dict. */
typedef fsdp_status fsdp_state_fill_fn(void *arg, size_t i, fsdp_tensor *to);
/* `fill` each tensor of the dict while it may be written. Every rank calls it with the same dict;
 * after a failure a rank goes on to wait for its peers. */
FSDP_MUST_CHECK fsdp_status fsdp_state_dict_fill(const fsdp_state_dict *dict,
                                                 fsdp_state_fill_fn *fill, void *arg);
