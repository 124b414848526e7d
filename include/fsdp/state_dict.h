/**
 * @file
 * State dicts: a model's and an optimizer's values by name, as
 * torch.distributed.checkpoint.state_dict gives and takes them, and the checkpoints they are saved
 * in.
 *
 *     fsdp_state_dict *model, *optim, *all;
 *     FSDP_TRY(fsdp_get_model_state_dict(module, NULL, &model));
 *     FSDP_TRY(fsdp_get_optimizer_state_dict(module, optimizer, NULL, &optim));
 *     FSDP_TRY(fsdp_state_dict_create(&all));
 *     FSDP_TRY(fsdp_state_dict_add(all, "model", model));
 *     FSDP_TRY(fsdp_state_dict_add(all, "optim", optim));
 *     FSDP_TRY(fsdp_dcp_save(all, "checkpoints/step_100", group, NULL));
 *
 * A sharded state dict (the default) holds the tensors of module and optimizer themselves, DTensors
 * where they are sharded: it costs nothing, takes no communication, and always shows the values of
 * now, also after parameters were frozen, unfrozen, or moved by fsdp_module_to_empty().
 * fsdp_dcp_load() reads into those tensors. fully_shard gives parameters other ones: take state
 * dicts after it.
 */
#pragma once
#include <fsdp/base.h>
#include <fsdp/comm.h>
#include <fsdp/nn.h>
#include <fsdp/optim.h>
#include <fsdp/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @name A state dict @{ */
typedef enum fsdp_plain_kind {
    FSDP_PLAIN_NONE,
    FSDP_PLAIN_BOOL,
    FSDP_PLAIN_INT,
    FSDP_PLAIN_FLOAT,
    FSDP_PLAIN_STR,
    FSDP_PLAIN_TUPLE,
    FSDP_PLAIN_LIST
} fsdp_plain_kind;

/** A plain value of Python. */
typedef struct fsdp_plain {
    fsdp_plain_kind kind;
    union {
        bool boolean;
        int64_t integer;
        double number;
        const char *text; /**< UTF-8 */
        struct {
            const struct fsdp_plain *items; /**< [n] */
            size_t n;
        } list; /**< FSDP_PLAIN_TUPLE, FSDP_PLAIN_LIST */
    } as;
} fsdp_plain;

/** One step from the whole state dict to an item. */
typedef struct fsdp_state_key {
    const char *name; /**< key of a dict; NULL: place `index` of a list */
    int64_t index;
    bool is_int; /**< the dict's key is the int that `name` spells, in files of torch.save */
} fsdp_state_key;

/** One item; borrowed from its state dict. */
typedef struct fsdp_state_entry {
    const char *fqn;            /**< keys joined with dots: "optim.param_groups.0.lr" */
    const fsdp_state_key *keys; /**< [n_keys] */
    int n_keys;
    fsdp_tensor *tensor;     /**< a DTensor, or whole; NULL: a plain value */
    const fsdp_plain *value; /**< NULL: a tensor */
} fsdp_state_entry;

/** Items by name, in the order in which they were put. */
typedef struct fsdp_state_dict fsdp_state_dict;

FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_state_dict_create(fsdp_state_dict **dict);
FSDP_API void fsdp_state_dict_destroy(fsdp_state_dict *dict); /**< accepts NULL */
FSDP_API size_t fsdp_state_dict_count(const fsdp_state_dict *dict);
FSDP_API const fsdp_state_entry *fsdp_state_dict_at(const fsdp_state_dict *dict, size_t i);
/** The item of that fqn; NULL if there is none. O(1). */
FSDP_API const fsdp_state_entry *fsdp_state_dict_find(const fsdp_state_dict *dict, const char *fqn);
/**
 * Put a tensor, or a plain value, in place of what has the same fqn.
 * @param keys   [n_keys], n_keys >= 1; copied
 * @param tensor retained
 * @param value  copied, with everything in it
 * @{
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_state_dict_put_tensor(fsdp_state_dict *dict,
                                                                const fsdp_state_key *keys,
                                                                int n_keys, fsdp_tensor *tensor);
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_state_dict_put_value(fsdp_state_dict *dict,
                                                               const fsdp_state_key *keys,
                                                               int n_keys, const fsdp_plain *value);
/** @} */
/** dict[key] = part: every item of `part` under a further first key. Tensors are shared. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_state_dict_add(fsdp_state_dict *dict, const char *key,
                                                         const fsdp_state_dict *part);
/** *part = dict[key], a new state dict; empty if there is no such key. Tensors are shared. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_state_dict_part(const fsdp_state_dict *dict,
                                                          const char *key, fsdp_state_dict **part);
/** @} */

/** @name Of modules and optimizers @{ */
/** torch.distributed.checkpoint.state_dict.StateDictOptions; zero means its defaults. */
typedef struct fsdp_state_dict_options {
    bool full_state_dict; /**< whole tensors; default: what each rank has */
    bool cpu_offload;     /**< with full_state_dict: rank 0 alone gets them, the others an empty
                               dict. (Tensors of the cpu device are where they are to go.) */
    bool rank0_only;      /**< get: the same, by its name in FullStateDictConfig and
                               FullOptimStateDictConfig; only with full_state_dict */
    bool offload_to_cpu;  /**< that of FullStateDictConfig, FullOptimStateDictConfig and
                               ShardedStateDictConfig, which says nothing of ranks: every tensor of
                               a state dict is in the CPU's memory already, so it changes nothing */
    bool broadcast_from_rank0; /**< set: rank 0's dict counts, the others' may be empty; its tensors
                                    are whole */
    bool not_strict;           /**< set: items that are missing or too many are no error; default:
                                    strict=True */
    bool assign;               /**< set: the dict's tensors become the parameters, as
                                    load_state_dict(assign=True). Parameters of a unit of fully_shard lie in its
                                    memory, and are copied into all the same. A tensor is
                                    assigned to one parameter; it has the dtype of what it replaces */
    bool ignore_frozen_params; /**< leave out parameters that do not require gradients */
    bool flatten_optimizer_state_dict; /**< param_groups by parameter, not by number */
    const char *submodule;        /**< only what is below this path, e.g. "encoder"; NULL: all */
    bool drop_submodule_prefixes; /**< names without `submodule`: keep_submodule_prefixes=False */
    fsdp_group *group; /**< the ranks that call: full_state_dict, broadcast_from_rank0 and set;
                            NULL: this one alone */
} fsdp_state_dict_options;

/**
 * Every parameter under each of its names (tied ones several times), in PyTorch's order.
 *
 * Not collective, unless full_state_dict asks for whole tensors: then they are gathered one at a
 * time, and all of them stay in the memory of who gets them. fsdp_state_dict_stream() needs memory
 * for one.
 *
 * @param options NULL: all defaults
 * @param dict    out: owned by the caller. Its tensors are the parameters' (fsdp_parameter_local())
 *                unless it is full.
 * @return FSDP_ERR_STATE naming a parameter that has no memory; FSDP_ERR_NOT_FOUND for `submodule`;
 *         FSDP_ERR_INVALID for rank0_only without full_state_dict
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_get_model_state_dict(
    fsdp_module *module, const fsdp_state_dict_options *options, fsdp_state_dict **dict);
/**
 * State and options of `optimizer` by the names that its parameters have in `module`:
 * "state.<fqn>.exp_avg", "state.<fqn>.step" (a copy, float32 without dimensions), and
 * "param_groups.0.lr", or with flatten_optimizer_state_dict "param_groups.<fqn>.lr". A tied
 * parameter has one name here, its first. An optimizer that has taken no step gets its state now,
 * zero, as PyTorch does it, so that there is something to load into.
 *
 * @return FSDP_ERR_INVALID if a parameter of the optimizer is not one of the module's, or for
 *         rank0_only without full_state_dict
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_get_optimizer_state_dict(fsdp_module *module, fsdp_optimizer *optimizer,
                              const fsdp_state_dict_options *options, fsdp_state_dict **dict);
/** Both: get_state_dict(). */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_get_state_dict(fsdp_module *module,
                                                         fsdp_optimizer *optimizer,
                                                         const fsdp_state_dict_options *options,
                                                         fsdp_state_dict **model,
                                                         fsdp_state_dict **optim);

/** In what a state dict and the module differ: torch's _IncompatibleKeys. */
typedef struct fsdp_incompatible_keys {
    char **missing; /**< [n_missing] names that the dict lacks */
    size_t n_missing;
    char **unexpected; /**< [n_unexpected] names that the module lacks */
    size_t n_unexpected;
} fsdp_incompatible_keys;
FSDP_API void fsdp_incompatible_keys_free(fsdp_incompatible_keys *keys);

/**
 * Copy the dict's values into the module's parameters, converting dtypes. A unit's frozen parameter
 * is stored in the dtype that its values come in, as fsdp_module_load() does it. A tensor of the
 * dict is what the parameter is on this rank, or whole: then each rank takes its own part of it. Of
 * a parameter of several names the last one in the dict counts.
 *
 * Collective over options->group. Everything is checked on every rank before the first value
 * changes: if one rank fails, all do and the module is as it was.
 *
 * @param keys out, with FSDP_OK and with FSDP_ERR_NOT_FOUND: all names; freed with
 *             fsdp_incompatible_keys_free(). NULL if not wanted
 * @return FSDP_ERR_NOT_FOUND naming what is missing or too much (unless not_strict);
 *         FSDP_ERR_INVALID naming the parameter and both shapes
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_set_model_state_dict(fsdp_module *module, const fsdp_state_dict *dict,
                          const fsdp_state_dict_options *options, fsdp_incompatible_keys *keys);
/**
 * Copy the dict's state into the optimizer, which may have taken no step yet, and its options into
 * the parameter groups. A group's options are found by the names of its parameters. A parameter
 * that the dict has nothing of begins anew. Both forms of param_groups are read, whatever
 * options->flatten_optimizer_state_dict says. Collective over options->group.
 *
 * @return FSDP_ERR_NOT_FOUND naming state that is there in part, or names that no parameter of the
 *         optimizer has (unless not_strict); FSDP_ERR_INVALID for a shape or value that does not
 *         fit; FSDP_ERR_UNSUPPORTED for options that this library has not: amsgrad, maximize.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_set_optimizer_state_dict(fsdp_module *module, fsdp_optimizer *optimizer,
                              const fsdp_state_dict *dict, const fsdp_state_dict_options *options);
/** Both: set_state_dict(). */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_state_dict(fsdp_module *module,
                                                         fsdp_optimizer *optimizer,
                                                         const fsdp_state_dict *model,
                                                         const fsdp_state_dict *optim,
                                                         const fsdp_state_dict_options *options,
                                                         fsdp_incompatible_keys *keys);

/** Called on rank 0 with each item in order. Its tensor is whole, and borrowed for the call. */
typedef fsdp_status fsdp_state_dict_stream_fn(const fsdp_state_entry *entry, void *arg);
/**
 * A full state dict on rank 0 alone without holding it (rank0_only): whole tensors, one at a time.
 * Collective; a failure of `consume` is one on all ranks.
 * @param dict  sharded, the same names on all ranks
 * @param group NULL: this rank alone
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_state_dict_stream(const fsdp_state_dict *dict,
                                                            fsdp_group *group,
                                                            fsdp_state_dict_stream_fn *consume,
                                                            void *arg);
/** @} */

/** @name Checkpoints of torch.distributed.checkpoint @{ */
/** Zero means default. */
typedef struct fsdp_dcp_save_options {
    bool overwrite; /**< replace the checkpoint in a directory of that name, whose other files stay;
                         default: refuse it */
} fsdp_dcp_save_options;

/**
 * torch.distributed.checkpoint.save(): each rank writes what it has into a file of its own; what
 * several have is written by the first of them. PyTorch loads it, at any world size. The directory
 * appears whole or not at all.
 *
 * Collective, and a failure of one rank is one of all. Every rank plans for itself and no value
 * travels; three small all_gathers say that all are well, and where things lie.
 *
 * @param dict  the same names and shapes on all ranks. Plain values are rank 0's.
 * @param dir   the same path for all ranks
 * @param group NULL: this rank alone
 * @return FSDP_ERR_INVALID if the ranks' parts overlap, or do not make up a tensor; FSDP_ERR_IO if
 *         the disk is full
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dcp_save(const fsdp_state_dict *dict, const char *dir,
                                                   fsdp_group *group,
                                                   const fsdp_dcp_save_options *options);

/** Zero means default. */
typedef struct fsdp_dcp_async_save_options {
    bool overwrite;       /**< as in fsdp_dcp_save_options */
    size_t staging_bytes; /**< memory of this rank for values that are overwritten before they were
                             read; default: 256 MiB shared out among the ranks of a host */
} fsdp_dcp_async_save_options;

/** A save that goes on beside the caller's work: the future that async_save() returns. */
typedef struct fsdp_async_save fsdp_async_save;
/**
 * torch.distributed.checkpoint.async_save(): fsdp_dcp_save() of the values of now, written by a
 * thread of each rank while the caller goes on, and changes them.
 *
 *     FSDP_TRY(fsdp_dcp_async_save(all, "checkpoints/step_100", group, NULL, &save));
 *     ... training ...
 *     status = fsdp_async_save_wait(save);
 *     fsdp_async_save_destroy(save);
 *
 * Nothing is copied at the call. Before a tensor is first written afterwards (by an optimizer, a
 * loader, anybody between fsdp_tensor_begin_write() and _end_write()), what the thread has not
 * read of its storage yet is copied; where `staging_bytes` are in use, the writer waits. A storage
 * that nobody writes is never copied; the masters of a sharded unit that are used without a copy
 * are one storage, so that frozen ones beside trained ones may be. While another save of the same
 * tensors has not written its files, this one waits for it. The bytes of the files are those that
 * fsdp_dcp_save() would have written at the call.
 *
 * Collective, like fsdp_dcp_save(), for the call alone, of one small all_gather: after it the ranks
 * say nothing to each other until fsdp_async_save_wait().
 *
 * @param dict    may be changed or destroyed afterwards; module, optimizer and device stay until
 * the save has ended
 * @param dir     no other save is writing it
 * @param save    out: owned by the caller, ended by fsdp_async_save_destroy()
 * @return what is wrong with the plan, as fsdp_dcp_save(); FSDP_ERR_IO if the disk has no room now.
 *         What fails later, also a thread that cannot start, is told by fsdp_async_save_wait().
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dcp_async_save(const fsdp_state_dict *dict,
                                                         const char *dir, fsdp_group *group,
                                                         const fsdp_dcp_async_save_options *options,
                                                         fsdp_async_save **save);
/** Has this rank's part ended, well or not (on rank 0: is the checkpoint there)? Future.done(); not
 * collective. */
FSDP_API bool fsdp_async_save_done(fsdp_async_save *save);
/**
 * Until the checkpoint is there: Future.result(). Collective, and a failure of one rank is one of
 * all; then nothing is left of it. May be called again.
 * @return FSDP_ERR_IO naming file and cause
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_async_save_wait(fsdp_async_save *save);
/** A save that was not waited for is given up. Not collective. Accepts NULL. */
FSDP_API void fsdp_async_save_destroy(fsdp_async_save *save);

/** Zero means default. */
typedef struct fsdp_dcp_load_options {
    bool allow_partial_load; /**< items that the checkpoint lacks stay as they are; default: an
                                  error, as in DefaultLoadPlanner */
    const char *prefix;      /**< of the checkpoint's names, e.g. "app": "app.model.x" is read into
                                  "model.x"; NULL: none */
} fsdp_dcp_load_options;

/**
 * torch.distributed.checkpoint.load(): read a checkpoint into the tensors of `dict` (of module and
 * optimizer, if it came from them) and replace its plain values. The ranks, meshes and placements
 * that wrote it do not matter; each rank reads only the files' parts that it needs. What the
 * checkpoint holds beside that is ignored. Plain values that are no fsdp_plain (dicts, bytes) are
 * left as they are in `dict`. A unit's frozen parameter is stored in the checkpoint's dtype first.
 *
 * What was loaded into copies ("step", options of an optimizer) is taken over by
 * fsdp_set_optimizer_state_dict(), as in PyTorch.
 *
 * Collective. Names, shapes and files are checked on all ranks before the first value changes.
 *
 * @return FSDP_ERR_NOT_FOUND naming what the checkpoint lacks, or if there is none;
 *         FSDP_ERR_INVALID naming a tensor and both shapes; FSDP_ERR_FORMAT if it is damaged: if
 *         that shows while values are read, some of them have changed
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dcp_load(fsdp_state_dict *dict, const char *dir,
                                                   fsdp_group *group,
                                                   const fsdp_dcp_load_options *options);
/** @} */

/** @name Files of torch.save @{ */
/**
 * torch.save() of a state dict, whole: rank 0 writes, tensors are gathered one at a time, so that
 * memory for one of them is enough. torch.load() reads it with weights_only and mmap. The file
 * appears whole or not at all. Collective; a failure of one rank is one of all.
 *
 * @param dict  the same names on all ranks; sharded or full. Its keys become dicts and lists in
 * each other, as the state dict of PyTorch has them.
 * @param path  replaced if it exists
 * @param group NULL: this rank alone
 * @return FSDP_ERR_INVALID for keys that are no tree; FSDP_ERR_IO if the disk is full
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_torch_save(const fsdp_state_dict *dict, const char *path,
                                                     fsdp_group *group);
/**
 * torch.load(weights_only=True): whole tensors, copied to `device`, and plain values, under the
 * keys of the dicts and lists that they are in. Nothing of the file is run. Not collective.
 *
 * @param dict out: owned by the caller; destroyed before the device
 * @return FSDP_ERR_NOT_FOUND, FSDP_ERR_FORMAT if it is damaged, FSDP_ERR_UNSUPPORTED naming what is
 *         neither a tensor nor plain, or a name that two items have: "a.b", and "b" in "a"
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_torch_load(const char *path, fsdp_device *device,
                                                     fsdp_state_dict **dict);
/**
 * fsdp_dcp_load() from a file of torch.save: read it into the tensors of `dict`, converting dtypes,
 * and replace its plain values. Each rank copies its own part of the file; memory for one tensor at
 * most is needed beside them, and none for rows of the same dtype. What the file holds beside that
 * is ignored.
 *
 * Collective. Names, shapes and checksums are checked on all ranks before the first value changes.
 *
 * @return FSDP_ERR_NOT_FOUND naming what the file lacks, or if there is none; FSDP_ERR_FORMAT
 *         naming a tensor and both shapes, or if it is damaged; FSDP_ERR_INVALID if something is a
 *         tensor in one of them only
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_torch_load_into(fsdp_state_dict *dict, const char *path,
                                                          fsdp_group *group);
/** @} */

/** @name Kinds of checkpoints: StateDictType @{ */
typedef enum fsdp_state_dict_type {
    FSDP_STATE_DICT_SHARDED, /**< SHARDED_STATE_DICT: a folder, fsdp_dcp_save() and fsdp_dcp_load()
                              */
    FSDP_STATE_DICT_FULL,    /**< FULL_STATE_DICT: whole tensors in a file of rank 0,
                                  fsdp_torch_save() and fsdp_torch_load_into() */
    FSDP_STATE_DICT_LOCAL    /**< LOCAL_STATE_DICT: each rank's parts in a file of its own,
                                  fsdp_local_save() and fsdp_local_load() */
} fsdp_state_dict_type;

/**
 * Each rank writes what it has, as it is, to the file <stem>_rank<rank>.pt, which torch.load()
 * reads: its parts under their names, and {"local_shards": {"rank", "world_size", "offsets"}}. No
 * value travels between ranks. Each file appears whole or not at all, but not all of them together.
 * Collective; a failure of one rank is one of all.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_local_save(const fsdp_state_dict *dict, const char *stem,
                                                     fsdp_group *group);
/**
 * What fsdp_local_save() wrote, on as many ranks with the same sharding. Collective; everything is
 * checked on all ranks before the first value changes.
 * @return FSDP_ERR_INVALID naming both numbers of ranks, or a part that lies elsewhere; and as
 *         fsdp_torch_load_into()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_local_load(fsdp_state_dict *dict, const char *stem,
                                                     fsdp_group *group);
/** @} */

#ifdef __cplusplus
}
#endif
