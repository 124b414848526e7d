/* Private parts of state dicts that the files of this folder share: the container, options, and the
 * copying of values into tensors. */
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
    size_t *slots; /* [n_slots] hash table by fqn: index into `entries`, plus 1; 0: free */
    size_t n_slots;
    const char *companion; /* name of another file in the checkpoint folder; a save writes this name
                              to .metadata; static string; NULL: none */
};

/* Join the keys of an item with dots: {{"state"}, {fqn}, {"step"}} gives "state.<fqn>.step". The
 * caller owns the result, which is NULL if memory ran out. */
char *fsdp_state_keys_join(const fsdp_state_key *keys, int n_keys);

/* Return `options`, or the defaults if it is NULL. */
const fsdp_state_dict_options *fsdp_state_options(const fsdp_state_dict_options *options);
int fsdp_state_rank(const fsdp_state_dict_options *options);
/* Check the options of a call that gets a state dict. Return FSDP_ERR_INVALID for rank0_only
 * without full_state_dict. */
FSDP_MUST_CHECK fsdp_status fsdp_state_check_get(const fsdp_state_dict_options *options);

/* Return true if the options include this parameter. In that case, set *shown to the parameter's
 * name in the dict: `name`, without the prefix of the submodule if drop_submodule_prefixes is
 * set. */
bool fsdp_state_name(const fsdp_state_dict_options *options, const char *name,
                     const fsdp_parameter *parameter, const char **shown);
/* Check that `module` has the submodule options->submodule. Return FSDP_ERR_NOT_FOUND if it does
 * not. */
FSDP_MUST_CHECK fsdp_status fsdp_state_check_submodule(fsdp_module *module,
                                                       const fsdp_state_dict_options *options);
/* Finish a call that gets a state dict. The caller has tried to make a sharded dict. `sharded` is
 * this dict. `status` is FSDP_OK, or the error of the attempt.
 *
 * Without full_state_dict, this function sets *dict to `sharded`, or returns `status` if that is an
 * error. With full_state_dict, this function is collective. It makes a full dict from `sharded`,
 * sets *dict to the full dict, and always frees `sharded`. If a rank passes an error, the call
 * fails on all ranks. */
FSDP_MUST_CHECK fsdp_status fsdp_state_hand_out(fsdp_status status, fsdp_state_dict *sharded,
                                                const fsdp_state_dict_options *options,
                                                fsdp_state_dict **dict);

/* Put "param_groups.<i>.initial_lr" for each parameter group into `optim`, the nested state dict of
 * an optimizer. torch's schedulers add this key, and a script with a scheduler expects it in a
 * checkpoint. */
FSDP_MUST_CHECK fsdp_status fsdp_state_put_initial_lr(fsdp_state_dict *optim, int n_groups,
                                                      double base_lr);

/* Return true if the state dict of this optimizer contains the number of steps. torch's SGD counts
 * no steps. */
bool fsdp_state_counts_steps(const fsdp_optimizer *optimizer);
/* `optim` is the nested state dict of an optimizer. Copy to `to` the options in its param_groups
 * that the steps of the optimizer change. If there are such options, also copy "params" of each
 * group. A run that resumes with options of its own reads only these items and the states. */
FSDP_MUST_CHECK fsdp_status fsdp_state_add_changing_options(fsdp_state_dict *to,
                                                            const fsdp_state_dict *optim,
                                                            const fsdp_optimizer *optimizer);

/* One copy operation: the values of `from` are to be copied into the tensor `to`. Operations are
 * first collected and checked. They are run once all ranks agree that no check has failed. */
typedef struct fsdp_state_copy {
    fsdp_tensor *to;   /* borrowed: a local tensor */
    fsdp_tensor *from; /* borrowed; NULL: this rank has no values for `to` */
    const char *name;  /* borrowed, for messages */
} fsdp_state_copy;

typedef struct fsdp_state_copies {
    fsdp_state_copy *items;
    size_t n, cap;
} fsdp_state_copies;

/* Add a copy from `from` to `to`. `to` is a local tensor: this rank's part of a whole tensor.
 * `from` is the whole tensor, or the same part of the whole tensor as `to`, or NULL if this rank
 * has no values. Return FSDP_ERR_INVALID if the shape or the part of `from` does not match `to`, or
 * if `from` is not contiguous. */
FSDP_MUST_CHECK fsdp_status fsdp_state_copies_add(fsdp_state_copies *copies, const char *name,
                                                  fsdp_tensor *to, fsdp_tensor *from);
/* Make the copies. Collective. All ranks must have added the same tensors in the same order. If one
 * rank fails, all fail. */
FSDP_MUST_CHECK fsdp_status fsdp_state_copies_run(const fsdp_state_copies *copies,
                                                  const fsdp_state_dict_options *options);
void fsdp_state_copies_fini(fsdp_state_copies *copies);

/* Provides the values of one tensor to a save, so that the save does not read the tensor itself.
 * The function read() uses the fields `part` and `save`. */
typedef struct fsdp_state_source fsdp_state_source;
struct fsdp_state_source {
    /* Like fsdp_dcp_tensor.read(); the argument `source` is this object. */
    fsdp_status (*read)(void *source, uint64_t offset, void *out, size_t bytes);
    struct fsdp_snapshot_part *part;
    struct fsdp_async_save *save;
};
/* Create the manifest (dcp_manifest.h) of a save of `dict`. Entry i of the manifest describes item
 * i of `dict`. If `sources` [count of dict] is not NULL and item i is a tensor, the save calls
 * sources[i].read() to get the values of this tensor. `sources` must outlive the manifest. If
 * `sources` is NULL, the save gets the values from the tensors of `dict` when it writes the file.
 */
FSDP_MUST_CHECK fsdp_status fsdp_state_dict_manifest(const fsdp_state_dict *dict,
                                                     fsdp_state_source *sources,
                                                     fsdp_dcp_manifest **manifest);

/* Save as fsdp_dcp_save() does, but to the directory that `place` describes. `mine` is FSDP_OK, or
 * the error of a step that this rank took before the call. If one rank passes an error, the call
 * fails on all ranks. `dict` is not read if `mine` is an error. */
FSDP_MUST_CHECK fsdp_status fsdp_state_dict_save(fsdp_status mine, const fsdp_state_dict *dict,
                                                 const fsdp_group_place *place, fsdp_group *group);
/* Save only this rank's parts, to a file in the format of fsdp_torch_save(). Not collective. */
FSDP_MUST_CHECK fsdp_status fsdp_state_dict_write_parts(const fsdp_state_dict *dict,
                                                        const char *path);

/* Load as fsdp_torch_load_into() does, but allow the file to lack items of `dict`. Such items keep
 * their values. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_load_partly(fsdp_state_dict *dict, const char *path,
                                                   fsdp_group *group);

/* The key under which fsdp_local_save() describes the parts in the file. Its value is a dict with
 * "rank", "world_size" and "offsets": {fqn: tuple}. */
#define FSDP_LOCAL_SHARDS "local_shards"
enum {
    FSDP_LOCAL_MAX_RANKS = 1 << 20
};

/* Convert the pickle value `from` to a plain value, whose memory is in `arena`. *known is set to
 * false if `from` is not plain or is nested too deeply. Return FSDP_ERR_FORMAT if the arena would
 * become larger than any real checkpoint needs. */
FSDP_MUST_CHECK fsdp_status fsdp_state_read_plain(const fsdp_pickle_value *from, fsdp_arena *arena,
                                                  fsdp_plain *to, bool *known);

/* Put a plain value into the pickle. */
void fsdp_state_write_plain(fsdp_pickle_writer *w, const fsdp_plain *value);

/* Writes values into the tensor `to`, which is item `i` of the dict. */
typedef fsdp_status fsdp_state_fill_fn(void *arg, size_t i, fsdp_tensor *to);
/* Call `fill` for each tensor of the dict. During the call, a write to this tensor is open
 * (fsdp_writing_next()). Every rank must call this function, with the same tensors in the same
 * order, because ranks wait for each other when a write begins. If `fill` fails, this rank does not
 * call `fill` again. It still begins and ends a write for each remaining tensor, so that its peers
 * do not wait forever. */
FSDP_MUST_CHECK fsdp_status fsdp_state_dict_fill(const fsdp_state_dict *dict,
                                                 fsdp_state_fill_fn *fill, void *arg);
