/* Private functions of state dicts. */
#pragma once
#include <fsdp/state_dict.h>

#include "src/base/arena.h"
#include "src/dcp/dcp_writer.h"
#include "src/torchfile/pickle_reader.h"
#include "src/torchfile/pickle_writer.h"

struct fsdp_state_dict {
    fsdp_arena arena; /* owns names, keys and values */
    fsdp_state_entry *entries;
    size_t n, cap;
    size_t *slots; /* [n_slots] hash table by fqn: index into entries + 1; 0: free */
    size_t n_slots;
    const char *companion; /* name of another file in the checkpoint folder, recorded when the dict
                              is saved (dcp_manifest.h); static string; NULL: none */
};

/* Return the path of an item as text: {{"state"}, {fqn}, {"step"}} gives "state.<fqn>.step". */
char *fsdp_state_keys_join(const fsdp_state_key *keys,
                           int n_keys); /* owned by the caller; NULL if memory ran out */

/* Return `options`, or the defaults if it is NULL. */
const fsdp_state_dict_options *fsdp_state_options(const fsdp_state_dict_options *options);
int fsdp_state_rank(const fsdp_state_dict_options *options);
/* Check the options of a function that gets a state dict. FSDP_ERR_INVALID if they contradict each
 * other. */
FSDP_MUST_CHECK fsdp_status fsdp_state_check_get(const fsdp_state_dict_options *options);

/* Do the options include this parameter? If so, *shown is its name in the dict: `name`, or `name`
 * without the prefix of the submodule. */
bool fsdp_state_name(const fsdp_state_dict_options *options, const char *name,
                     const fsdp_parameter *parameter, const char **shown);
/* Check that options->submodule is a module of `module`. FSDP_ERR_NOT_FOUND if it is not. */
FSDP_MUST_CHECK fsdp_status fsdp_state_check_submodule(fsdp_module *module,
                                                       const fsdp_state_dict_options *options);
/* Turn `sharded` into the dict that the user gets, *dict. `status` is the result of making
 * `sharded`. Without full_state_dict, *dict is `sharded` itself. With full_state_dict, *dict is a
 * full dict, the call is collective, and `sharded` is freed, also on failure. */
FSDP_MUST_CHECK fsdp_status fsdp_state_hand_out(fsdp_status status, fsdp_state_dict *sharded,
                                                const fsdp_state_dict_options *options,
                                                fsdp_state_dict **dict);

/* Put "param_groups.<i>.initial_lr" for each group of an optimizer's nested dict. torch's
 * schedulers add this key, and a script with a scheduler expects it in a checkpoint. */
FSDP_MUST_CHECK fsdp_status fsdp_state_put_initial_lr(fsdp_state_dict *optim, int n_groups,
                                                      double base_lr);

/* Does this optimizer's state dict contain the number of steps? torch's SGD counts no steps. */
bool fsdp_state_counts_steps(const fsdp_optimizer *optimizer);

/* Values and the tensor that they are copied into. Copies are first collected and checked. They run
 * once all ranks agree that no check failed. */
typedef struct fsdp_state_copy {
    fsdp_tensor *to;   /* borrowed: a local tensor */
    fsdp_tensor *from; /* borrowed; NULL on ranks that receive the values from rank 0 */
    const char *name;  /* borrowed, for messages */
} fsdp_state_copy;

typedef struct fsdp_state_copies {
    fsdp_state_copy *items;
    size_t n, cap;
} fsdp_state_copies;

/* Add a copy. FSDP_ERR_INVALID if `from` (which may be NULL) is neither the whole tensor nor this
 * rank's part of it. */
FSDP_MUST_CHECK fsdp_status fsdp_state_copies_add(fsdp_state_copies *copies, const char *name,
                                                  fsdp_tensor *to, fsdp_tensor *from);
/* Run the copies. Collective, with the same tensors in the same order on all ranks. If one rank
 * fails, all fail. */
FSDP_MUST_CHECK fsdp_status fsdp_state_copies_run(const fsdp_state_copies *copies,
                                                  const fsdp_state_dict_options *options);
void fsdp_state_copies_fini(fsdp_state_copies *copies);

/* A source of values that is used instead of a tensor. read() uses `part` and `save`. */
typedef struct fsdp_state_source fsdp_state_source;
struct fsdp_state_source {
    /* Like fsdp_dcp_tensor.read(); `source` is this object. */
    fsdp_status (*read)(void *source, uint64_t offset, void *out, size_t bytes);
    struct fsdp_snapshot_part *part;
    struct fsdp_async_save *save;
};
/* Make the manifest of what fsdp_dcp_save() writes. Its entry i is item i of `dict`. `sources`
 * [count] must outlive the manifest. If `sources` is NULL, the tensors themselves are used, with
 * the values that they have when they are written. */
FSDP_MUST_CHECK fsdp_status fsdp_state_dict_manifest(const fsdp_state_dict *dict,
                                                     fsdp_state_source *sources,
                                                     fsdp_dcp_manifest **manifest);

/* Save as fsdp_dcp_save() does, but to any `place`. `mine` is the status of this rank's own
 * preparations. If it is an error, `dict` is not read. */
FSDP_MUST_CHECK fsdp_status fsdp_state_dict_save(fsdp_status mine, const fsdp_state_dict *dict,
                                                 const fsdp_group_place *place, fsdp_group *group);
/* Save only this rank's parts, in a file like those of fsdp_torch_save(). Not collective. */
FSDP_MUST_CHECK fsdp_status fsdp_state_dict_write_parts(const fsdp_state_dict *dict,
                                                        const char *path);

/* Load as fsdp_torch_load_into() does, but items of `dict` that the file does not have keep their
 * values. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_load_partly(fsdp_state_dict *dict, const char *path,
                                                   fsdp_group *group);

/* The key under which fsdp_local_save() describes the parts. Its value is a dict with "rank",
 * "world_size" and "offsets": {fqn: tuple}. */
#define FSDP_LOCAL_SHARDS "local_shards"
enum {
    FSDP_LOCAL_MAX_RANKS = 1 << 20
};

/* Convert a pickle's value to a plain one in `arena`. *known is false if the value is not plain, or
 * is nested too deeply. FSDP_ERR_FORMAT if the arena would become larger than any real checkpoint
 * needs. */
FSDP_MUST_CHECK fsdp_status fsdp_state_read_plain(const fsdp_pickle_value *from, fsdp_arena *arena,
                                                  fsdp_plain *to, bool *known);

/* Put the value into the pickle. */
void fsdp_state_write_plain(fsdp_pickle_writer *w, const fsdp_plain *value);

/* Write values into tensor `to`, which is item `i` of the dict. */
typedef fsdp_status fsdp_state_fill_fn(void *arg, size_t i, fsdp_tensor *to);
/* Call `fill` for each tensor of the dict, between the beginning and the end of a write to the
 * tensor. Every rank calls this with the same dict. After a failure, this rank still begins and
 * ends the remaining writes, without calling `fill`, because its peers wait for it in them. */
FSDP_MUST_CHECK fsdp_status fsdp_state_dict_fill(const fsdp_state_dict *dict,
                                                 fsdp_state_fill_fn *fill, void *arg);
