/**
 * @file
 * State dicts: the values of a model and an optimizer by name, like
 * torch.distributed.checkpoint.state_dict, and the checkpoints they are saved in.
 *
 *     fsdp_state_dict *model, *optim, *all;
 *     FSDP_TRY(fsdp_get_model_state_dict(module, NULL, &model));
 *     FSDP_TRY(fsdp_get_optimizer_state_dict(module, optimizer, NULL, &optim));
 *     FSDP_TRY(fsdp_state_dict_create(&all));
 *     FSDP_TRY(fsdp_state_dict_add(all, "model", model));
 *     FSDP_TRY(fsdp_state_dict_add(all, "optim", optim));
 *     FSDP_TRY(fsdp_dcp_save(all, "checkpoints/step_100", group, NULL));
 *
 * A sharded state dict (the default) copies no tensors. It refers to the tensors of the module and
 * the optimizer, which are DTensors if they are sharded. It needs no communication and always shows
 * the current values, even after parameters were frozen, unfrozen, or moved by
 * fsdp_module_to_empty(). fsdp_dcp_load() reads into these tensors. fully_shard replaces the
 * tensors of parameters, so get state dicts after fully_shard.
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

/** A plain Python value. */
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

/** One step on the path from the whole state dict to an item. */
typedef struct fsdp_state_key {
    const char *name; /**< key of a dict; NULL: position `index` of a list */
    int64_t index;
    bool is_int; /**< true: in files of torch.save, the key is an int, and `name` is its decimal
                      text */
} fsdp_state_key;

/** One item, borrowed from its state dict. */
typedef struct fsdp_state_entry {
    const char *fqn;            /**< keys joined with dots: "optim.param_groups.0.lr" */
    const fsdp_state_key *keys; /**< [n_keys] */
    int n_keys;
    fsdp_tensor *tensor;     /**< a DTensor or a whole tensor; NULL if the item is a plain value */
    const fsdp_plain *value; /**< NULL if the item is a tensor */
} fsdp_state_entry;

/** A list of items in the order in which they were added; they can be found by name. */
typedef struct fsdp_state_dict fsdp_state_dict;

FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_state_dict_create(fsdp_state_dict **dict);
FSDP_API void fsdp_state_dict_destroy(fsdp_state_dict *dict); /**< accepts NULL */
FSDP_API size_t fsdp_state_dict_count(const fsdp_state_dict *dict);
FSDP_API const fsdp_state_entry *fsdp_state_dict_at(const fsdp_state_dict *dict, size_t i);
/** Get the item with name `fqn`; NULL if there is none. O(1). */
FSDP_API const fsdp_state_entry *fsdp_state_dict_find(const fsdp_state_dict *dict, const char *fqn);
/**
 * Add a tensor or a plain value. It replaces an item with the same fqn.
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
/** dict[key] = part: add every item of `part`, with `key` put before its own keys. Tensors are
 * shared. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_state_dict_add(fsdp_state_dict *dict, const char *key,
                                                         const fsdp_state_dict *part);
/** *part = dict[key]: create a state dict of the items whose first key is `key`, without that key.
 * It is empty if there are none. Tensors are shared. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_state_dict_part(const fsdp_state_dict *dict,
                                                          const char *key, fsdp_state_dict **part);
/** @} */

/** @name State dicts of modules and optimizers @{ */
/** torch.distributed.checkpoint.state_dict.StateDictOptions; zero means its defaults. Fields marked
 * "get" or "set" are used only by the functions that get or set values. */
typedef struct fsdp_state_dict_options {
    bool full_state_dict; /**< whole tensors; default: this rank's parts */
    bool cpu_offload; /**< with full_state_dict: only rank 0 gets the tensors, and the other ranks
                           get an empty dict. (Tensors of the cpu device are in CPU memory
                           already.) */
    bool rank0_only;  /**< get: another name for cpu_offload, from FullStateDictConfig and
                           FullOptimStateDictConfig; requires full_state_dict */
    bool offload_to_cpu;       /**< as in FullStateDictConfig, FullOptimStateDictConfig and
                                    ShardedStateDictConfig. It has no effect: all tensors of a state
                                    dict are in CPU memory already */
    bool broadcast_from_rank0; /**< set: use rank 0's dict, whose tensors must be whole; the dicts
                                    of other ranks may be empty */
    bool not_strict;           /**< set: ignore missing and unexpected items; default:
                                    strict=True */
    /**
     * set: the dict's tensors become the parameters, as in load_state_dict(assign=True). This does
     * not apply to the parameters of a unit: they are parts of the unit's buffer, so values are
     * copied into them. A tensor may be assigned to one parameter only and must have the dtype of
     * the tensor that it replaces.
     */
    bool assign;
    bool ignore_frozen_params;         /**< leave out parameters that do not require a gradient */
    bool flatten_optimizer_state_dict; /**< the keys of param_groups are names of parameters, not
                                            numbers */
    const char *submodule;        /**< only the items below this path, e.g. "encoder"; NULL: all */
    bool drop_submodule_prefixes; /**< remove `submodule` from names:
                                       keep_submodule_prefixes=False */
    fsdp_group *group;            /**< the ranks that make the call; used with full_state_dict and
                                       broadcast_from_rank0, and to set values. NULL: this rank
                                       alone */
} fsdp_state_dict_options;

/**
 * Get every parameter under each of its names, in PyTorch's order. A tied parameter has several
 * names.
 *
 * Not collective unless full_state_dict is set. Whole tensors are then gathered one at a time, and
 * a rank that receives them keeps all of them in memory. fsdp_state_dict_stream() needs memory for
 * one tensor only.
 *
 * @param options NULL: all defaults
 * @param dict    out: owned by the caller. Its tensors are those of fsdp_parameter_local() unless
 *                full_state_dict is set.
 * @return FSDP_ERR_STATE naming a parameter that has no memory; FSDP_ERR_NOT_FOUND if there is no
 *         module `submodule`; FSDP_ERR_INVALID for rank0_only without full_state_dict
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_get_model_state_dict(
    fsdp_module *module, const fsdp_state_dict_options *options, fsdp_state_dict **dict);
/**
 * Get state and options of `optimizer` by the names of its parameters in `module`:
 * "state.<fqn>.exp_avg", "state.<fqn>.step" (a float32 scalar, which is a copy), and
 * "param_groups.0.lr" or, with flatten_optimizer_state_dict, "param_groups.<fqn>.lr". A tied
 * parameter has only its first name here. If the optimizer has taken no step, its state is created
 * now with zeros, as in PyTorch, so that there are tensors to load into.
 *
 * @return FSDP_ERR_INVALID if a parameter of the optimizer is not one of the module's, or for
 *         rank0_only without full_state_dict
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_get_optimizer_state_dict(fsdp_module *module, fsdp_optimizer *optimizer,
                              const fsdp_state_dict_options *options, fsdp_state_dict **dict);
/** get_state_dict(): fsdp_get_model_state_dict() and fsdp_get_optimizer_state_dict() in one
 * call. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_get_state_dict(fsdp_module *module,
                                                         fsdp_optimizer *optimizer,
                                                         const fsdp_state_dict_options *options,
                                                         fsdp_state_dict **model,
                                                         fsdp_state_dict **optim);

/** torch's _IncompatibleKeys: names that only the module has, and names that only the state dict
 * has. */
typedef struct fsdp_incompatible_keys {
    char **missing; /**< [n_missing] names that the dict does not have */
    size_t n_missing;
    char **unexpected; /**< [n_unexpected] names that the module does not have */
    size_t n_unexpected;
} fsdp_incompatible_keys;
FSDP_API void fsdp_incompatible_keys_free(fsdp_incompatible_keys *keys);

/**
 * Copy the dict's values into the module's parameters and convert dtypes. A frozen parameter of a
 * unit is stored in the dtype of the new values, as with fsdp_module_load(). A tensor of the dict
 * is either this rank's part of the parameter or whole. From a whole tensor each rank copies its
 * own part. If the dict has several names of one parameter, the last one is used.
 *
 * Collective over options->group. Everything is checked on every rank before the first value
 * changes: if one rank fails, all fail and the module is unchanged.
 *
 * @param keys out: all missing and unexpected names, set if the result is FSDP_OK or
 *             FSDP_ERR_NOT_FOUND; freed with fsdp_incompatible_keys_free(). May be NULL
 * @return FSDP_ERR_NOT_FOUND naming a missing or unexpected item (unless not_strict);
 *         FSDP_ERR_INVALID naming the parameter and both shapes
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_set_model_state_dict(fsdp_module *module, const fsdp_state_dict *dict,
                          const fsdp_state_dict_options *options, fsdp_incompatible_keys *keys);
/**
 * Copy the dict's state into the optimizer, and the dict's options into the optimizer's parameter
 * groups. The optimizer need not have taken a step before. Groups are matched by the names of their
 * parameters. The state of a parameter that is not in the dict is reset. Both forms of param_groups
 * are accepted, regardless of options->flatten_optimizer_state_dict. Collective over
 * options->group.
 *
 * @return FSDP_ERR_NOT_FOUND naming a parameter whose state is incomplete, or names that no
 *         parameter of the optimizer has (unless not_strict); FSDP_ERR_INVALID for a shape or value
 *         that does not fit; FSDP_ERR_UNSUPPORTED for options that this library does not have
 *         (amsgrad, maximize).
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_set_optimizer_state_dict(fsdp_module *module, fsdp_optimizer *optimizer,
                              const fsdp_state_dict *dict, const fsdp_state_dict_options *options);
/** set_state_dict(): fsdp_set_model_state_dict() and fsdp_set_optimizer_state_dict() in one
 * call. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_state_dict(fsdp_module *module,
                                                         fsdp_optimizer *optimizer,
                                                         const fsdp_state_dict *model,
                                                         const fsdp_state_dict *optim,
                                                         const fsdp_state_dict_options *options,
                                                         fsdp_incompatible_keys *keys);

/** A function that is called on rank 0 for each item in order. The item's tensor is whole and
 * borrowed for the call. */
typedef fsdp_status fsdp_state_dict_stream_fn(const fsdp_state_entry *entry, void *arg);
/**
 * Gather the tensors of a state dict on rank 0 (rank0_only) and pass them to `consume` one at a
 * time, so that only one whole tensor is in memory. Collective; if `consume` fails, all ranks fail.
 * @param dict  sharded, with the same names on all ranks
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
    bool overwrite; /**< replace the checkpoint in an existing directory and keep the other files
                         there; default: an error unless the directory is empty */
} fsdp_dcp_save_options;

/**
 * torch.distributed.checkpoint.save(): each rank writes its parts into a file of its own. If
 * several ranks have the same part, the first of these ranks writes it. PyTorch can load the result
 * at any world size. The directory appears complete or not at all.
 *
 * Collective; if one rank fails, all fail. Every rank plans its own part, and no values are sent:
 * three small all_gathers exchange the status and the locations of the parts.
 *
 * @param dict  the same names and shapes on all ranks; plain values are taken from rank 0
 * @param dir   the same path on all ranks
 * @param group NULL: this rank alone
 * @return FSDP_ERR_INVALID if the ranks' parts of a tensor overlap or leave gaps; FSDP_ERR_IO if
 *         the disk is full
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dcp_save(const fsdp_state_dict *dict, const char *dir,
                                                   fsdp_group *group,
                                                   const fsdp_dcp_save_options *options);

/** Zero means default. */
typedef struct fsdp_dcp_async_save_options {
    bool overwrite;       /**< as in fsdp_dcp_save_options */
    size_t staging_bytes; /**< size of the memory in which this rank keeps copies of values that
                               training is about to overwrite before the save has read them;
                               default: 256 MiB divided by the number of ranks on the host */
} fsdp_dcp_async_save_options;

/** A save that runs in the background: the future returned by async_save(). */
typedef struct fsdp_async_save fsdp_async_save;
/**
 * torch.distributed.checkpoint.async_save(): save the current values like fsdp_dcp_save(), but in a
 * background thread of each rank. The caller may change the values in the meantime.
 *
 *     FSDP_TRY(fsdp_dcp_async_save(all, "checkpoints/step_100", group, NULL, &save));
 *     ... training ...
 *     status = fsdp_async_save_wait(save);
 *     fsdp_async_save_destroy(save);
 *
 * The call itself copies nothing. When an optimizer, a loader, or a caller of
 * fsdp_tensor_begin_write() is about to write a tensor, the parts of its storage that the thread
 * has not read yet are copied first. If all of `staging_bytes` is in use, the write waits. A
 * storage that is not written is never copied. Weights of a sharded unit may share one storage, so
 * frozen weights may be copied together with trained weights. If an earlier save of the same
 * tensors is still writing its files, this save waits for it. The files have the bytes that
 * fsdp_dcp_save() would have written at the time of the call.
 *
 * Only the call itself is collective, with one small all_gather. The ranks do not communicate again
 * until fsdp_async_save_wait().
 *
 * @param dict may be changed or destroyed afterwards; module, optimizer and device must live until
 *             the save has ended
 * @param dir  no other save may be writing to it
 * @param save out: owned by the caller, ended by fsdp_async_save_destroy()
 * @return the errors that fsdp_dcp_save() finds before it writes; FSDP_ERR_IO if the disk has too
 *         little space at the time of the call. Later failures, including a thread that cannot
 *         start, are returned by fsdp_async_save_wait().
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dcp_async_save(const fsdp_state_dict *dict,
                                                         const char *dir, fsdp_group *group,
                                                         const fsdp_dcp_async_save_options *options,
                                                         fsdp_async_save **save);
/** Future.done(): has this rank's part ended, with or without success? Rank 0's part includes the
 * completion of the checkpoint. Not collective. */
FSDP_API bool fsdp_async_save_done(fsdp_async_save *save);
/**
 * Future.result(): wait until the checkpoint is complete. Collective; if one rank fails, all fail
 * and nothing remains of the checkpoint. May be called again.
 * @return FSDP_ERR_IO naming file and cause
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_async_save_wait(fsdp_async_save *save);
/** Free the save. If fsdp_async_save_wait() was not called, cancel it. Not collective. Accepts
 * NULL. */
FSDP_API void fsdp_async_save_destroy(fsdp_async_save *save);

/** Zero means default. */
typedef struct fsdp_dcp_load_options {
    bool allow_partial_load; /**< if the checkpoint lacks items of the dict, keep their values;
                                  default: an error, as in DefaultLoadPlanner */
    const char *prefix;      /**< prefix of the names in the checkpoint, e.g. "app":
                                  "app.model.x" is read into "model.x"; NULL: none */
} fsdp_dcp_load_options;

/**
 * torch.distributed.checkpoint.load(): read a checkpoint into the tensors of `dict` and replace the
 * plain values of `dict`. If `dict` is the sharded state dict of a module or an optimizer, these
 * are the tensors of that module or optimizer. The number of ranks, the meshes and the placements
 * may differ from those of the save. Each rank reads only the parts of the files that it needs.
 * Items that are only in the checkpoint are ignored. If the checkpoint has a plain value that
 * fsdp_plain cannot represent (a dict, bytes), `dict` keeps its own value. A frozen parameter of a
 * unit is first changed to the checkpoint's dtype.
 *
 * The dict only has copies of some values ("step" and the options of an optimizer). To change the
 * optimizer, pass the dict to fsdp_set_optimizer_state_dict() afterwards, as in PyTorch.
 *
 * Collective. Names, shapes and files are checked on all ranks before the first value changes.
 *
 * @return FSDP_ERR_NOT_FOUND naming an item that the checkpoint does not have, or if there is no
 *         checkpoint; FSDP_ERR_INVALID naming a tensor and both shapes; FSDP_ERR_FORMAT if the
 *         checkpoint is damaged. If the damage is found only while values are read, some values
 *         have changed already
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dcp_load(fsdp_state_dict *dict, const char *dir,
                                                   fsdp_group *group,
                                                   const fsdp_dcp_load_options *options);
/** @} */

/** @name Files of torch.save @{ */
/**
 * torch.save() of a state dict with whole tensors. Rank 0 writes the file. Tensors are gathered one
 * at a time, so only one whole tensor is in memory. torch.load() can read the file with
 * weights_only and mmap. The file appears complete or not at all. Collective; if one rank fails,
 * all fail.
 *
 * @param dict  the same names on all ranks; sharded or full. Its keys become nested dicts and
 *              lists, as in PyTorch's state dict.
 * @param path  replaced if it exists
 * @param group NULL: this rank alone
 * @return FSDP_ERR_INVALID if the keys do not form a tree; FSDP_ERR_IO if the disk is full
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_torch_save(const fsdp_state_dict *dict, const char *path,
                                                     fsdp_group *group);
/**
 * torch.load(weights_only=True): read a file into a new state dict. Its tensors are whole and
 * copied to `device`; its keys are those of the nested dicts and lists in the file. No code in the
 * file is executed. Not collective.
 *
 * @param dict out: owned by the caller; must be destroyed before the device
 * @return FSDP_ERR_NOT_FOUND; FSDP_ERR_FORMAT if the file is damaged; FSDP_ERR_UNSUPPORTED naming
 *         an object that is neither a tensor nor a plain value, or a name that two items share
 *         ("a.b" at the top, and "b" in "a")
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_torch_load(const char *path, fsdp_device *device,
                                                     fsdp_state_dict **dict);
/**
 * fsdp_dcp_load() for a file of torch.save: read the file into the tensors of `dict`, convert
 * dtypes, and replace the plain values of `dict`. Each rank copies its own parts from the file.
 * This needs extra memory for at most one tensor, and none if a rank's part consists of rows in the
 * file's dtype. Items that are only in the file are ignored.
 *
 * Collective. Names, shapes and checksums are checked on all ranks before the first value changes.
 *
 * @return FSDP_ERR_NOT_FOUND naming an item that the file does not have, or if there is no file;
 *         FSDP_ERR_FORMAT naming a tensor and both shapes, or if the file is damaged;
 *         FSDP_ERR_INVALID if an item is a tensor in the file and a plain value in `dict`, or the
 *         reverse
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_torch_load_into(fsdp_state_dict *dict, const char *path,
                                                          fsdp_group *group);
/** @} */

/** @name Kinds of checkpoints: StateDictType @{ */
typedef enum fsdp_state_dict_type {
    FSDP_STATE_DICT_SHARDED, /**< SHARDED_STATE_DICT: a folder, fsdp_dcp_save() and
                                  fsdp_dcp_load() */
    FSDP_STATE_DICT_FULL,    /**< FULL_STATE_DICT: whole tensors in one file, written by rank 0,
                                  fsdp_torch_save() and fsdp_torch_load_into() */
    FSDP_STATE_DICT_LOCAL    /**< LOCAL_STATE_DICT: each rank's parts in its own file,
                                  fsdp_local_save() and fsdp_local_load() */
} fsdp_state_dict_type;

/**
 * Each rank writes its own parts to the file <stem>_rank<rank>.pt, which torch.load() can read. It
 * contains the parts under their names, and {"local_shards": {"rank", "world_size", "offsets"}}. No
 * values are sent between ranks. Each file appears complete or not at all, but the set of files may
 * be incomplete. Collective; if one rank fails, all fail.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_local_save(const fsdp_state_dict *dict, const char *stem,
                                                     fsdp_group *group);
/**
 * Load the files of fsdp_local_save(). The number of ranks and the sharding must be the same as in
 * the save. Collective. Everything is checked on all ranks before the first value changes.
 * @return FSDP_ERR_INVALID naming both numbers of ranks, or a part with other offsets; and the
 *         errors of fsdp_torch_load_into()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_local_load(fsdp_state_dict *dict, const char *stem,
                                                     fsdp_group *group);
/** @} */

#ifdef __cplusplus
}
#endif
