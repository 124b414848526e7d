/**
 * @file
 * State dicts, which are the values of a model and an optimizer by name, as in
 * torch.distributed.checkpoint.state_dict; and functions that save and load state dicts.
 *
 *     fsdp_state_dict *model, *optim, *all;
 *     FSDP_TRY(fsdp_get_model_state_dict(module, NULL, &model));
 *     FSDP_TRY(fsdp_get_optimizer_state_dict(module, optimizer, NULL, &optim));
 *     FSDP_TRY(fsdp_state_dict_create(&all));
 *     FSDP_TRY(fsdp_state_dict_add(all, "model", model));
 *     FSDP_TRY(fsdp_state_dict_add(all, "optim", optim));
 *     FSDP_TRY(fsdp_dcp_save(all, "checkpoints/step_100", group, NULL));
 *
 * A sharded state dict (the default) copies no tensors, so getting it needs no communication. It
 * refers to the tensors of the module and of the optimizer, which are DTensors if they are sharded.
 * So it always has the current values, even after parameters were frozen, unfrozen, or moved by
 * fsdp_module_to_empty(). fsdp_dcp_load() reads values into these tensors. fsdp_fully_shard()
 * replaces the tensors of parameters, so get state dicts only afterwards.
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
        } list; /**< for FSDP_PLAIN_TUPLE and FSDP_PLAIN_LIST */
    } as;
} fsdp_plain;

/** A key of a dict, or an index in a list. State dicts are nested dicts and lists. An item has a
 * list of keys that leads from the outermost dict to the item. */
typedef struct fsdp_state_key {
    const char *name; /**< a key of a dict; NULL: the key is `index`, an index in a list */
    int64_t index;
    bool is_int; /**< true: in files of torch.save(), the key is a Python int, and `name` consists
                      of the digits of this int */
} fsdp_state_key;

/** One item, borrowed from its state dict. */
typedef struct fsdp_state_entry {
    const char *fqn;            /**< keys joined with dots: "optim.param_groups.0.lr" */
    const fsdp_state_key *keys; /**< [n_keys] */
    int n_keys;
    fsdp_tensor *tensor;     /**< a DTensor or a whole tensor; NULL if the item is a plain value */
    const fsdp_plain *value; /**< NULL if the item is a tensor */
} fsdp_state_entry;

/** A list of items, in the order in which they were added. Items can also be found by name. */
typedef struct fsdp_state_dict fsdp_state_dict;

FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_state_dict_create(fsdp_state_dict **dict);
FSDP_API void fsdp_state_dict_destroy(fsdp_state_dict *dict); /**< accepts NULL */
FSDP_API size_t fsdp_state_dict_count(const fsdp_state_dict *dict);
FSDP_API const fsdp_state_entry *fsdp_state_dict_at(const fsdp_state_dict *dict, size_t i);
/** Get the item with this `fqn`; NULL if there is none. O(1). */
FSDP_API const fsdp_state_entry *fsdp_state_dict_find(const fsdp_state_dict *dict, const char *fqn);
/**
 * Add a tensor as an item. If the dict has an item with the same fqn, replace that item.
 * @param keys   [n_keys], n_keys >= 1; copied
 * @param tensor retained
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_state_dict_put_tensor(fsdp_state_dict *dict,
                                                                const fsdp_state_key *keys,
                                                                int n_keys, fsdp_tensor *tensor);
/**
 * Add a plain value as an item. If the dict has an item with the same fqn, replace that item.
 * @param keys  [n_keys], n_keys >= 1; copied
 * @param value copied, with everything in it
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_state_dict_put_value(fsdp_state_dict *dict,
                                                               const fsdp_state_key *keys,
                                                               int n_keys, const fsdp_plain *value);
/** dict[key] = part: add every item of `part` to `dict`, with `key` before the item's keys. Both
 * dicts then refer to the same tensors. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_state_dict_add(fsdp_state_dict *dict, const char *key,
                                                         const fsdp_state_dict *part);
/** *part = dict[key]: create a state dict of the items whose first key is `key`. In the new dict,
 * the items do not have this first key. If no item of `dict` has this first key, the new dict is
 * empty. Both dicts then refer to the same tensors. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_state_dict_part(const fsdp_state_dict *dict,
                                                          const char *key, fsdp_state_dict **part);
/** @} */

/** @name State dicts of modules and optimizers @{ */
/** torch.distributed.checkpoint.state_dict.StateDictOptions. A field that is 0 or NULL has its
 * default. If the comment of a field begins with "get:", only functions that get values use the
 * field. If it begins with "set:", only functions that set values use the field. */
typedef struct fsdp_state_dict_options {
    bool full_state_dict; /**< true: the dict has whole tensors; default: this rank's parts */
    bool cpu_offload;    /**< get: with full_state_dict, only rank 0 gets the tensors, and the other
                            ranks get an empty dict */
    bool rank0_only;     /**< get: has the same effect as cpu_offload; the name is from
                            FullStateDictConfig and FullOptimStateDictConfig; requires
                            full_state_dict */
    bool offload_to_cpu; /**< an option of FullStateDictConfig and ShardedStateDictConfig; no
                            effect: the tensors are on the device of the module */
    bool broadcast_from_rank0; /**< set: use only rank 0's dict, whose tensors must be whole; the
                                  dicts of other ranks may be empty */
    bool not_strict; /**< set: true means strict=False: missing and unexpected items are ignored.
                        Default: they are an error */
    /**
     * set: each tensor of the dict becomes the tensor of its parameter, as in
     * load_state_dict(assign=True). A tensor can be assigned to one parameter only, and must have
     * the dtype of the tensor that it replaces. Parameters of units are an exception: values are
     * copied into them, because they are parts of the unit's buffer.
     */
    bool assign;
    bool ignore_frozen_params;         /**< leave out parameters that do not require a gradient */
    bool flatten_optimizer_state_dict; /**< get: the keys of param_groups are names of parameters
                                          instead of numbers */
    const char *submodule; /**< get or set only the items below this path, e.g. "encoder"; NULL: all
                              items */
    bool drop_submodule_prefixes; /**< keep_submodule_prefixes=False: names in the dict do not begin
                                     with `submodule` */
    fsdp_group *group; /**< the ranks that make the call; NULL: this rank alone. Functions that get
                          values use this field only with full_state_dict */
} fsdp_state_dict_options;

/**
 * Get the parameters of a module, in PyTorch's order. A tied parameter is in the dict under each of
 * its names.
 *
 * Collective only with full_state_dict. With this option, the whole tensors are gathered one by
 * one, and the dict of a rank that gets them has all of them in memory. fsdp_state_dict_stream()
 * needs memory for only one whole tensor.
 *
 * @param options NULL: all defaults
 * @param dict    out: owned by the caller. Without full_state_dict, its tensors are those of
 *                fsdp_parameter_local()
 * @return FSDP_ERR_STATE if a parameter has no memory (the message names it); FSDP_ERR_NOT_FOUND if
 *         there is no module `submodule`; FSDP_ERR_INVALID for rank0_only without full_state_dict;
 *         FSDP_ERR_UNSUPPORTED if a parameter is stored in NF4, unless it is left out
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_get_model_state_dict(
    fsdp_module *module, const fsdp_state_dict_options *options, fsdp_state_dict **dict);
/**
 * Get the state of an optimizer and the options of its parameter groups. Examples of the names of
 * items are "state.<fqn>.exp_avg", "state.<fqn>.step", and "param_groups.0.lr" or, with
 * flatten_optimizer_state_dict, "param_groups.<fqn>.lr". <fqn> is the name of a parameter in
 * `module`. If the parameter is tied, <fqn> is the first of its names. "step" is a float32 scalar,
 * or an int for Adafactor and AdamW with 8-bit states. The item "step" is a copy: if it is changed,
 * the optimizer does not change. SGD has no "step", and Schedule-Free AdamW has "k" in its
 * parameter groups instead. If the optimizer has taken no step yet, this function creates the
 * optimizer's state (fsdp_optimizer_init_state()), as PyTorch does, so that values can be loaded
 * into the state.
 *
 * @return FSDP_ERR_INVALID if `module` does not have a parameter of the optimizer, or for
 *         rank0_only without full_state_dict; FSDP_ERR_NOT_FOUND if there is no module `submodule`
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

/** torch's _IncompatibleKeys: the names that only the module has, and those that only the state
 * dict has. */
typedef struct fsdp_incompatible_keys {
    char **missing; /**< [n_missing] names that the dict does not have */
    size_t n_missing;
    char **unexpected; /**< [n_unexpected] names that the module does not have */
    size_t n_unexpected;
} fsdp_incompatible_keys;
FSDP_API void fsdp_incompatible_keys_free(fsdp_incompatible_keys *keys);

/**
 * Copy the values of `dict` into the module's parameters. The values are converted to the
 * parameters' dtypes, with one exception: a frozen parameter of a unit gets the dtype of the
 * values, as with fsdp_module_load(). A tensor of `dict` is either this rank's part of a parameter
 * or the whole parameter. From a whole parameter, each rank copies its part. If `dict` has several
 * names of a tied parameter, the parameter gets the value under the last of these names.
 *
 * Collective over options->group. Every rank checks everything before the first value changes. If a
 * check fails on one rank, the call fails on all ranks and changes nothing.
 *
 * @param keys out: all missing and unexpected names; may be NULL. Set only if the call returns
 *             FSDP_OK or FSDP_ERR_NOT_FOUND; then freed with fsdp_incompatible_keys_free()
 * @return FSDP_ERR_NOT_FOUND if an item is missing or unexpected, unless not_strict is set (the
 *         message names it); FSDP_ERR_INVALID if the shape of a tensor is not that of its parameter
 *         (the message has the name and both shapes), or if `assign` is set and a tensor cannot be
 *         assigned; FSDP_ERR_STATE if a parameter has no memory and `assign` is not set
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_set_model_state_dict(fsdp_module *module, const fsdp_state_dict *dict,
                          const fsdp_state_dict_options *options, fsdp_incompatible_keys *keys);
/**
 * Copy the state in `dict` into the optimizer, and the options in `dict` into the optimizer's
 * parameter groups. The optimizer may be new. A group gets the options that `dict` has for the
 * group's first parameter. If `dict` has no state for a parameter, the parameter's state is reset
 * to zeros. The keys of param_groups in `dict` may be numbers or names of parameters. This function
 * accepts both, and does not use options->flatten_optimizer_state_dict. Collective over
 * options->group.
 *
 * @return FSDP_ERR_NOT_FOUND if `dict` has only a part of a parameter's state. FSDP_ERR_NOT_FOUND
 *         if not_strict is false and `dict` has state for a name, but no parameter of the optimizer
 *         has that name. In both cases the message contains the name. FSDP_ERR_INVALID if a tensor
 *         has a wrong shape, or a value is not allowed. FSDP_ERR_UNSUPPORTED if `dict` sets an
 *         option that this library does not have (amsgrad, maximize), or has other maps of 8-bit
 *         states than bitsandbytes
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

/** A function that fsdp_state_dict_stream() calls on rank 0 for each item. If the item is a tensor,
 * `entry` has the whole tensor. `entry` is borrowed for the call. */
typedef fsdp_status fsdp_state_dict_stream_fn(const fsdp_state_entry *entry, void *arg);
/**
 * Pass each item of a state dict to `consume` on rank 0, in order. Each tensor is gathered just
 * before it is passed to `consume`, so only one whole tensor is in memory at a time. Collective. If
 * `consume` fails, the call fails on all ranks.
 * @param dict  a sharded state dict, with the same names on all ranks
 * @param group NULL: this rank alone
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_state_dict_stream(const fsdp_state_dict *dict,
                                                            fsdp_group *group,
                                                            fsdp_state_dict_stream_fn *consume,
                                                            void *arg);
/** @} */

/** @name Checkpoints of torch.distributed.checkpoint @{ */
/** Options of fsdp_dcp_save(). A field that is 0 has its default. */
typedef struct fsdp_dcp_save_options {
    bool overwrite; /**< true: replace a checkpoint that is in the directory, and keep the
                       directory's other files; default: it is an error if the directory is not
                       empty */
} fsdp_dcp_save_options;

/**
 * torch.distributed.checkpoint.save(): each rank writes its parts of the tensors to its own file.
 * If several ranks have the same part, only the first of them writes it. PyTorch can load the
 * checkpoint at any world size. The directory appears complete or not at all. If the ranks are on
 * several hosts that do not see the same directory `dir`, each host gets a directory with the files
 * of its ranks and with .metadata; `fsdp checkpoint gather` puts these directories together.
 *
 * Collective. If the save fails on one rank, it fails on all. Every rank decides by itself what it
 * writes, and no values are sent between ranks. The ranks exchange only the status and the
 * locations of the parts, in three small all-gathers.
 *
 * @param dict  must have the same names and shapes on all ranks. The plain values of rank 0 are
 *              saved
 * @param dir   the same path on all ranks
 * @param group NULL: this rank alone
 * @return FSDP_ERR_INVALID if the parts of a tensor overlap or have gaps between them, or if `dir`
 *         is not empty and `overwrite` is not set; FSDP_ERR_IO if the disk is full
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dcp_save(const fsdp_state_dict *dict, const char *dir,
                                                   fsdp_group *group,
                                                   const fsdp_dcp_save_options *options);

/** Options of fsdp_dcp_async_save(). A field that is 0 has its default. */
typedef struct fsdp_dcp_async_save_options {
    bool overwrite; /**< as in fsdp_dcp_save_options */
    /** Size of this rank's staging memory. If training overwrites a value that the save has not
     * read yet, the old value is first copied into the staging memory. Default: 256 MiB divided by
     * the number of ranks on the host. */
    size_t staging_bytes;
} fsdp_dcp_async_save_options;

/** A save that runs in the background. In PyTorch, it is the Future that async_save() returns. */
typedef struct fsdp_async_save fsdp_async_save;
/**
 * torch.distributed.checkpoint.async_save(): save the current values like fsdp_dcp_save(), but in a
 * background thread of each rank. The caller may change the values while the save runs.
 *
 *     FSDP_TRY(fsdp_dcp_async_save(all, "checkpoints/step_100", group, NULL, &save));
 *     ... training ...
 *     status = fsdp_async_save_wait(save);
 *     fsdp_async_save_destroy(save);
 *
 * The call itself copies nothing. If a tensor is written while the save runs, e.g. by an optimizer,
 * some values of the tensor's storage may not be saved yet. The write first copies these values to
 * the staging memory. If the staging memory is full, the write waits. A storage that is not written
 * is never copied. The weights of a sharded unit may share one storage, so frozen weights may be
 * copied together with trained ones. If an earlier save of the same tensors is still running, this
 * call waits for the earlier save. The files get the bytes that fsdp_dcp_save() would have written
 * at the time of the call.
 *
 * Collective: the call does one small all-gather. After that, the save does not communicate until
 * fsdp_async_save_wait().
 *
 * @param dict may be changed or destroyed after the call. The module, the optimizer and the device
 *             must exist until the save has ended
 * @param dir  must not be the directory of another save that is still running
 * @param save out: owned by the caller, destroyed with fsdp_async_save_destroy()
 * @return the errors that fsdp_dcp_save() finds before it writes; FSDP_ERR_IO if the disk has too
 *         little space at the time of the call. fsdp_async_save_wait() returns later failures, and
 *         also the failure to start the thread
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dcp_async_save(const fsdp_state_dict *dict,
                                                         const char *dir, fsdp_group *group,
                                                         const fsdp_dcp_async_save_options *options,
                                                         fsdp_async_save **save);
/** Future.done(): return true if this rank's work on the save has ended or failed. On rank 0, the
 * work includes making the checkpoint complete. Not collective. */
FSDP_API bool fsdp_async_save_done(fsdp_async_save *save);
/**
 * Future.result(): wait until the checkpoint is complete. Collective. If the save has failed on one
 * rank, this function fails on all ranks and the checkpoint is deleted. It may be called several
 * times.
 * @return the failure of the save, such as FSDP_ERR_IO; the message gives the file and the cause
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_async_save_wait(fsdp_async_save *save);
/** Free the save. If fsdp_async_save_wait() was not called, cancel the save first. Not collective.
 * Accepts NULL. */
FSDP_API void fsdp_async_save_destroy(fsdp_async_save *save);

/** Options of fsdp_dcp_load(). A field that is 0 or NULL has its default. */
typedef struct fsdp_dcp_load_options {
    bool allow_partial_load; /**< true: items of the dict that the checkpoint does not have keep
                                their values; default: such items are an error, as in
                                DefaultLoadPlanner */
    const char *prefix; /**< first part of the names in the checkpoint, which the names in the dict
                           do not have. If prefix is "app", the item "app.model.x" of the checkpoint
                           is read into the item "model.x" of the dict. NULL: the names are the
                           same */
} fsdp_dcp_load_options;

/**
 * torch.distributed.checkpoint.load(): read a checkpoint into the tensors of `dict` and replace the
 * plain values of `dict`. If `dict` is a sharded state dict, it refers to the tensors of a module
 * or an optimizer. In that case, the values are read directly into these tensors. The number of
 * ranks, the meshes and the placements may differ from those of the save. Each rank reads only the
 * parts of the files that it needs. If the checkpoint has an item that `dict` does not have, the
 * item is ignored. If an item of the checkpoint is a plain value that fsdp_plain cannot represent
 * (a dict, bytes), the item of `dict` with the same name does not change. A frozen parameter of a
 * unit gets the dtype that it has in the checkpoint: the unit changes the parameter's dtype before
 * the values are read.
 *
 * For some values of an optimizer ("step" and the options), the dict has only copies. To load these
 * values into the optimizer, pass the dict to fsdp_set_optimizer_state_dict() afterwards, as in
 * PyTorch.
 *
 * Collective. All ranks check names, shapes and files before the first value changes. If the ranks
 * are on several hosts, files that a host does not have are read from a host that has them; each
 * host needs .metadata.
 *
 * @return FSDP_ERR_NOT_FOUND if there is no checkpoint, or if it does not have an item of `dict`
 *         (the message names it); FSDP_ERR_INVALID if a tensor has different shapes in `dict` and
 *         in the checkpoint (the message has the name and both shapes), or if an item is a tensor
 *         in only one of the two; FSDP_ERR_UNSUPPORTED for a dtype that fsdp_dtype does not have;
 *         FSDP_ERR_FORMAT if the checkpoint is damaged. Some kinds of damage are found only while
 *         values are read. In this case, some values of `dict` have already changed
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dcp_load(fsdp_state_dict *dict, const char *dir,
                                                   fsdp_group *group,
                                                   const fsdp_dcp_load_options *options);
/** @} */

/** @name Files in torch.save()'s format @{ */
/**
 * torch.save() of a state dict: rank 0 writes all tensors, whole, to one file. Tensors are gathered
 * one by one, so only one whole tensor is in memory at a time. torch.load() can read the file, also
 * with weights_only and mmap. The file appears complete or not at all. Collective. If the call
 * fails on one rank, it fails on all.
 *
 * @param dict  sharded or full, with the same names on all ranks. Its keys become nested dicts and
 *              lists, as in PyTorch's state dict
 * @param path  replaced if it exists
 * @param group NULL: this rank alone
 * @return FSDP_ERR_INVALID if the keys do not form a tree; FSDP_ERR_IO if the disk is full
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_torch_save(const fsdp_state_dict *dict, const char *path,
                                                     fsdp_group *group);
/**
 * torch.load(weights_only=True): read a file into a new state dict. The tensors are whole, and
 * copied to `device`. The keys of an item are those of the nested dicts and lists that contain it
 * in the file, and its name consists of these keys, joined with dots. A value that fsdp_plain
 * cannot represent (an object, bytes) is left out, and a warning is logged. No code in the file is
 * executed. Not collective.
 *
 * @param dict out: owned by the caller; must be destroyed before the device
 * @return FSDP_ERR_NOT_FOUND if there is no file; FSDP_ERR_FORMAT if the file is damaged;
 *         FSDP_ERR_UNSUPPORTED if a tuple or a set has tensors in it, if a key is neither a text
 *         nor an int, or if two items have the same name ("a.b" at the top, and "b" in "a")
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_torch_load(const char *path, fsdp_device *device,
                                                     fsdp_state_dict **dict);
/**
 * Like fsdp_dcp_load(), but for a file of torch.save(): read the file into the tensors of `dict`,
 * convert dtypes, and replace the plain values of `dict`. Each rank copies its own parts from the
 * file. The copy needs no extra memory if the part consists of whole rows and has the same dtype as
 * in the file. Otherwise the copy needs memory for one more tensor. Items that only the file has
 * are ignored.
 *
 * Collective. Names, shapes and checksums are checked on all ranks before the first value changes.
 *
 * @return FSDP_ERR_NOT_FOUND if there is no file, or if it does not have an item of `dict` (the
 *         message names it); FSDP_ERR_FORMAT if a tensor has different shapes in `dict` and in the
 *         file (the message gives the name and both shapes), or if the file is damaged;
 *         FSDP_ERR_INVALID if an item is a tensor either in the file or in `dict`, but not in both
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_torch_load_into(fsdp_state_dict *dict, const char *path,
                                                          fsdp_group *group);
/** @} */

/** @name Kinds of checkpoints: StateDictType @{ */
typedef enum fsdp_state_dict_type {
    FSDP_STATE_DICT_SHARDED, /**< SHARDED_STATE_DICT: a folder written by fsdp_dcp_save(), read by
                                fsdp_dcp_load() */
    FSDP_STATE_DICT_FULL,    /**< FULL_STATE_DICT: one file with whole tensors, written by
                                fsdp_torch_save(), read by fsdp_torch_load_into() */
    /** LOCAL_STATE_DICT: one file for each rank, with the rank's parts of the tensors; written by
     * fsdp_local_save(), read by fsdp_local_load(). */
    FSDP_STATE_DICT_LOCAL
} fsdp_state_dict_type;

/**
 * Save a state dict: each rank writes its own parts to the file <stem>_rank<rank>.pt, which
 * torch.load() can read. The file has each part under the name of its item, and also a dict
 * "local_shards" with the keys "rank", "world_size" and "offsets". No values are sent between
 * ranks. Each file appears complete or not at all, but some of the files may be missing after a
 * failure. Collective. If the call fails on one rank, it fails on all.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_local_save(const fsdp_state_dict *dict, const char *stem,
                                                     fsdp_group *group);
/**
 * Load the files of fsdp_local_save(). The number of ranks and the sharding must be those of the
 * save. Collective. All ranks check everything before the first value changes.
 * @return FSDP_ERR_INVALID if the number of ranks or the offsets of a part differ from those of the
 *         save; the errors of fsdp_torch_load_into()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_local_load(fsdp_state_dict *dict, const char *stem,
                                                     fsdp_group *group);
/** @} */

#ifdef __cplusplus
}
#endif
