/**
 * @file
 * fully_shard: parameters, gradients and optimizer state over ranks, as PyTorch's FSDP2.
 *
 * Each module given to fsdp_fully_shard() is a unit: its parameters (those that no unit inside it
 * has) are gathered together before its forward and backward, and freed after them; its gradients
 * are reduced together. Call it bottom up: the blocks, then the root.
 *
 * Every fsdp_module_call() of a unit does so, whichever function it is given in place of the
 * module's own forward: what PyTorch needs register_fsdp_forward_method() for.
 */
#pragma once
#include <stdio.h>

#include <fsdp/base.h>
#include <fsdp/comm.h>
#include <fsdp/dtensor.h>
#include <fsdp/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * torch.distributed.fsdp.MixedPrecisionPolicy. Zero-initialised: everything float32.
 *
 * Zero is a dtype here, float32, and not PyTorch's None. FSDP2's None is for param_dtype the
 * parameter's own dtype, and for reduce_dtype param_dtype. So with bfloat16 masters zero computes
 * and reduces in float32, where MixedPrecisionPolicy() does so in bfloat16: say param_dtype and
 * reduce_dtype = bfloat16 for that. And {.param_dtype = bfloat16} reduces in float32, where
 * MixedPrecisionPolicy(param_dtype=torch.bfloat16) reduces in bfloat16.
 *
 * Inputs and outputs are the floating tensors that a module call passes and returns; gradients are
 * cast back on their way. Tables that operations take in float32 always (rotary tables, T5's bias
 * by distance) are no activations and keep their dtype. float16 needs an fsdp_grad_scaler.
 */
typedef struct fsdp_mp_policy {
    fsdp_dtype param_dtype;      /**< of compute and all-gather: float32, bfloat16 or float16 */
    fsdp_dtype reduce_dtype;     /**< gradients are rounded to it once, then summed in float32 */
    fsdp_dtype master_dtype;     /**< of the sharded parameters: float32 or bfloat16 */
    bool set_output_dtype;       /**< the outputs of the unit's forward are cast to output_dtype */
    fsdp_dtype output_dtype;     /**< not read without set_output_dtype: None */
    bool no_cast_forward_inputs; /**< default: inputs are cast to param_dtype */
    bool cast_root_forward_inputs; /**< FSDP1's: the outermost unit casts its inputs even so */
    /** FSDP1's, of the outermost unit: values of buffers (rotary tables) are rounded to it. Their
     * memory stays float32. */
    fsdp_dtype buffer_dtype;
} fsdp_mp_policy;

/**
 * torch.distributed.fsdp.MixedPrecision (FSDP1): what is not given is not cast. Zero-initialised:
 * MixedPrecision(), of which nothing is given.
 */
typedef struct fsdp_mixed_precision {
    bool set_param_dtype, set_reduce_dtype, set_buffer_dtype; /**< false: None */
    fsdp_dtype param_dtype;           /**< not given: compute in the parameters' own dtype */
    fsdp_dtype reduce_dtype;          /**< not given: param_dtype, or float32 without that */
    fsdp_dtype buffer_dtype;          /**< see fsdp_mp_policy */
    bool keep_low_precision_grads;    /**< refused: gradients of the shards are float32 here */
    bool cast_forward_inputs;         /**< of every unit, to param_dtype; default false */
    bool no_cast_root_forward_inputs; /**< default: the outermost unit casts its inputs, also
                                           without cast_forward_inputs */
} fsdp_mixed_precision;

/** The FSDP tutorials' policies by name: "bfSixteen", "fpSixteen", "fp32_policy", "grad_bf16".
 * FSDP_ERR_INVALID for another name, listing these. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_mixed_precision_preset(const char *name,
                                                                 fsdp_mixed_precision *mp);
/**
 * The policy that means the same for parameters whose masters are master_dtype.
 * @return FSDP_ERR_UNSUPPORTED for keep_low_precision_grads and for dtypes, naming the field
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_mp_policy_from_fsdp1(const fsdp_mixed_precision *mp,
                                                               fsdp_dtype master_dtype,
                                                               fsdp_mp_policy *policy);

typedef enum fsdp_offload_kind {
    FSDP_OFFLOAD_NONE,
    FSDP_OFFLOAD_CPU, /**< CPUOffloadPolicy, CPUOffload(offload_params=True): on the CPU device,
                           where parameters are anyway, a notice and nothing else */
    FSDP_OFFLOAD_DIR, /**< in a file */
} fsdp_offload_kind;

/**
 * Where masters and optimizer state are while nobody uses them. With FSDP_OFFLOAD_DIR each rank has
 * a file without a name in `dir` (readable by its user alone; gone with the process), in which
 * blocks are reserved when memory is made, so that a full disk is an error then. Those of two or
 * three units are in memory at a time: a thread reads one unit ahead and writes one behind. All
 * units are then gathered through copies, in float32 too; numbers are the same in every bit.
 */
typedef struct fsdp_offload_policy {
    fsdp_offload_kind kind;
    const char *dir; /**< FSDP_OFFLOAD_DIR: made if it is missing; the same for all units */
} fsdp_offload_policy;

typedef enum fsdp_reshard {
    FSDP_RESHARD_DEFAULT, /**< true, but false for the root, as FSDP2 */
    FSDP_RESHARD_TRUE,    /**< free after forward, gather again for backward (ZeRO-3) */
    FSDP_RESHARD_FALSE,   /**< keep until after backward (ZeRO-2) */
    /** FSDP2's integer: backward gathers among reshard_ranks ranks only. Those of one host share
     * one copy, which so lies there until after backward; reading it in between is an error. */
    FSDP_RESHARD_TO_SMALLER,
} fsdp_reshard;

/** torch.distributed.fsdp.BackwardPrefetch: when the unit that backward needs next is gathered. */
typedef enum fsdp_backward_prefetch {
    FSDP_BACKWARD_PRE,  /**< before the current unit computes: most overlap, two units at once */
    FSDP_BACKWARD_POST, /**< after the current unit has computed and was freed: less memory */
    FSDP_BACKWARD_NONE, /**< when it is needed */
} fsdp_backward_prefetch;

/** What a unit's forward gathers ahead of time. */
typedef enum fsdp_forward_prefetch {
    FSDP_FORWARD_IMPLICIT, /**< what followed it last time, as long as the order is last time's */
    FSDP_FORWARD_STRICT,   /**< likewise, and an iteration that enters units in another order than
                                the first one did fails with FSDP_ERR_STATE, on every rank that
                                does and before it communicates: FSDP1's forward_prefetch=True */
    FSDP_FORWARD_NONE,     /**< nothing */
} fsdp_forward_prefetch;

/**
 * Along which dimension is this parameter, called `name` within the unit's module, to be cut? The
 * same answer on every rank.
 * @return i of Shard(i); a negative one counts from the last dimension, -1
 */
typedef int fsdp_shard_placement_fn(const char *name, const fsdp_parameter *parameter, void *arg);

typedef struct fsdp_fully_shard_options {
    fsdp_mp_policy mp_policy;
    fsdp_reshard reshard_after_forward;
    /** Of FSDP_RESHARD_TO_SMALLER, else not read: a divisor of the shard ranks; 1 is
     * FSDP_RESHARD_FALSE, all of them FSDP_RESHARD_TRUE. */
    int reshard_ranks;
    /** NO_SHARD: every rank keeps whole master, gradients and optimizer state. What is frozen lies
     * once for the ranks of a host: a write of it is collective, and the first rank's values count.
     */
    bool no_shard;
    /** Borrowed: it outlives the module. 1-D: parameters are sharded over it. 2-D (replicate,
     * shard): HSDP, sharded over dimension 1, and each shard has a copy on every rank of dimension
     * 0, over which gradients are reduced as well. NULL: all ranks of `group`. */
    const fsdp_device_mesh *mesh;
    /** NULL: Shard(0). A parameter cut along another dimension is copied to be gathered, also in
     * float32, and the gradient norm adds its parts by rank and not by row: in the last bits that
     * depends on the number of ranks. Adafactor, which needs whole rows, refuses it. */
    fsdp_shard_placement_fn *shard_placement_fn;
    void *shard_placement_arg;
    /** [n_ignored_params] of no unit: every rank has them whole, in memory that the caller gives
     * (fsdp_module_to_empty()), and their gradients are the rank's own. Borrowed for the call. */
    fsdp_parameter *const *ignored_params;
    size_t n_ignored_params;
    /** The values that rank 0 has before are everybody's; ranks that have none need no memory. */
    bool sync_module_states;
    fsdp_backward_prefetch backward_prefetch; /**< the outermost unit's counts, for all of them */
    fsdp_forward_prefetch forward_prefetch;   /**< likewise */
    /** Default: at most two units beyond the computing one are gathered ahead, others wait for
     * their turn. true: no such limit, and memory for one unit more, so that a unit is gathered
     * ahead while peers are still in the one that was left. The outermost unit's counts. */
    bool no_limit_all_gathers;
    fsdp_offload_policy offload_policy; /**< default: everything stays in memory */
} fsdp_fully_shard_options;

/**
 * Make `module` a unit over `group`. Its parameters get memory now (contents undefined unless they
 * had memory: then each rank takes its rows of it). Collective. Before the first forward of the
 * module or anything around it; what fails changes nothing.
 *
 * Afterwards fsdp_parameter_local() is a DTensor of this rank's rows of the master, and
 * fsdp_parameter_data() has data only between unshard and reshard. A parameter that a module of
 * another tree names as well may outlive the unit: then it has no memory, values or gradient, as
 * when it was made.
 *
 * @param group   borrowed: it outlives the module. NULL or of one rank: nothing is communicated.
 * The ranks of options->mesh if there is one, or NULL
 * @param device  the rank's; all units of one tree are over the same device and group
 * @param options NULL: all defaults; copied
 * @return FSDP_ERR_INVALID if it is a unit already, if a parameter of it is one of a unit that is
 *         not inside it, naming both, or for a mesh of other ranks or of more than 2
 *         dimensions, or for reshard_ranks, naming both numbers; FSDP_ERR_UNSUPPORTED for dtypes;
 * FSDP_ERR_STATE if a module around it is a unit, or one inside has run already.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_fully_shard(fsdp_module *module, fsdp_group *group,
                                                      fsdp_device *device,
                                                      const fsdp_fully_shard_options *options);
/**
 * The same for several modules that are one unit together, e.g. the last norm and the head:
 * fully_shard([norm, head]). They are gathered when the first of them runs and freed when the last
 * one has, or when the outermost unit's forward ends; likewise in backward.
 *
 * Each of them is a unit then (fsdp_module_is_unit()); calls on one apply to all.
 *
 * A parameter that two of them share is theirs.
 *
 * @param modules [n] of one tree, none inside another; the array is copied
 * @return also FSDP_ERR_INVALID for other modules, naming two
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_fully_shard_modules(fsdp_module *const *modules, size_t n, fsdp_group *group,
                         fsdp_device *device, const fsdp_fully_shard_options *options);
FSDP_API bool fsdp_module_is_unit(const fsdp_module *module);

/** What is known of a unit without running it. */
typedef struct fsdp_unit_info {
    const fsdp_module *first_module; /**< of several modules that are one unit; else the module */
    fsdp_group *group; /**< parameters are sharded over; borrowed; NULL: this rank is alone */
    fsdp_group *replicate_group;  /**< HSDP: that hold the same rows; or NULL */
    const fsdp_device_mesh *mesh; /**< options' */
    int mesh_ndim;                /**< 1 without a mesh */
    /** [mesh_ndim] of its parameters, but for what shard_placement_fn said of some */
    fsdp_placement placements[FSDP_MAX_MESH_DIMS];
    fsdp_mp_policy mp_policy;
    bool reshard_after_forward; /**< what FSDP_RESHARD_DEFAULT means for it, by the units that
                                     there are now */
    bool no_shard;
    fsdp_offload_kind offload;
    size_t n_parameters;
    int64_t frozen_numel;       /**< of `numel`: what does not require a gradient */
    int64_t numel, local_numel; /**< of its parameters: whole, and this rank's rows of them */
    int reshard_ranks;          /**< of FSDP_RESHARD_TO_SMALLER; else 0 */
    bool is_unsharded;          /**< its parameters have data now */
    bool is_prefetched;         /**< its gather has begun and was not waited for */
    bool is_held;               /**< by fsdp_unit_unshard() */
    fsdp_backward_prefetch backward_prefetch; /**< this and the next two: of its outermost unit */
    fsdp_forward_prefetch forward_prefetch;
    bool limit_all_gathers;
    size_t n_forward_prefetch, n_backward_prefetch; /**< modules that it prefetches explicitly */
    bool requires_gradient_sync;                    /**< false also within no_sync */
    bool requires_all_reduce;
    bool reshard_after_backward, unshard_in_backward, is_last_backward;
    double gradient_divide_factor; /**< 0: world_size */
} fsdp_unit_info;

/** @return FSDP_ERR_INVALID if module is no unit. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_unit_get_info(const fsdp_module *module,
                                                        fsdp_unit_info *info);

typedef enum fsdp_print_form {
    FSDP_PRINT_FSDP2, /**< (0): FSDPT5Block( */
    FSDP_PRINT_FSDP1, /**< (0): FullyShardedDataParallel( (_fsdp_wrapped_module): T5Block( */
} fsdp_print_form;

/**
 * Write the tree as torch prints modules: equal neighbours of a ModuleList once, as
 * "(0-5): 6 x T5Block(". Each unit's line ends with its dtypes and with how many of its elements
 * lie on this rank: "# bfloat16 of float32, reduced in float32, returns float32, 64 of 154
 * elements", of which those for gradients and outputs are told where they differ from param_dtype,
 * or are set. What stands in a layer's parentheses: fsdp_module_set_extra_repr().
 * @return FSDP_ERR_IO if `out` takes no more
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_print(const fsdp_module *module, FILE *out,
                                                       fsdp_print_form form);

/** @name Wrap policies: torch.distributed.fsdp.wrap @{ */
typedef enum fsdp_wrap_kind {
    FSDP_WRAP_TRANSFORMER, /**< modules of some classes: transformer_auto_wrap_policy */
    FSDP_WRAP_SIZE,        /**< modules of many parameters: size_based_auto_wrap_policy */
    FSDP_WRAP_NONE,        /**< the root alone */
    FSDP_WRAP_CUSTOM,      /**< a function says: CustomPolicy */
} fsdp_wrap_kind;

/**
 * Is this module, of the dotted path `path`, to be a unit? Asked for every module below the root,
 * children first; the answer is the same on every rank.
 * @param options in: the root's; may be changed for this unit
 */
typedef bool fsdp_wrap_fn(const char *path, const fsdp_module *module, void *arg,
                          fsdp_fully_shard_options *options);

/**
 * What fully_shard(layer, mp_policy=...) says of one unit: called for the root, of path "", and for
 * every module that a policy of any kind has chosen; the same on every rank.
 * @param options in: the root's; may be changed for this unit
 */
typedef void fsdp_unit_options_fn(const char *path, const fsdp_module *module, void *arg,
                                  fsdp_fully_shard_options *options);

/** Which modules become units. The fields of other kinds are not read. */
typedef struct fsdp_wrap_policy {
    fsdp_wrap_kind kind;
    /** TRANSFORMER: class names, NULL-terminated, also of modules inside each other; a model's own
     * are fsdp_model_info's block_classes. */
    const char *const *transformer_layer_cls;
    /** SIZE: a module becomes a unit if it has so many parameters that no unit inside it has;
     * ignored ones do not count. 0: 100000000. */
    int64_t min_num_params;
    /** SIZE: class names that are no units, NULL-terminated. NULL: ModuleList, ModuleDict. */
    const char *const *exclude_wrap_modules;
    /** SIZE: likewise, and nothing inside them is. NULL: MultiheadAttention. */
    const char *const *force_leaf_modules;
    fsdp_wrap_fn *custom; /**< CUSTOM */
    void *custom_arg;
    /** Of every kind: so many chosen modules of one class that follow each other in one list are
     * one unit together, see fsdp_fully_shard_modules(); it has the first one's options. 0 or 1:
     * each is one. */
    int modules_per_unit;
    /** Of every kind: [n_joint_modules] modules that are one unit together, whatever the kind says
     * of each, see fsdp_fully_shard_modules(); it has the first one's options. What is inside them
     * is chosen as elsewhere. SIZE counts their parameters as those of the module around. */
    fsdp_module *const *joint_modules;
    size_t n_joint_modules;
    fsdp_unit_options_fn *unit_options; /**< NULL: all units have the root's options */
    void *unit_options_arg;
} fsdp_wrap_policy;

/**
 * FullyShardedDataParallel(root, auto_wrap_policy=...): fsdp_fully_shard() of the modules that the
 * policy chooses, children first, and then of `root`. Collective.
 *
 * Only a module with a forward of its own can be a unit. One that merely holds parameters, which
 * the module around it reads (Linear, LayerNorm, Embedding), counts as a part of that: by SIZE it
 * is never chosen, by the other kinds it is an error. A model's head and the embedding of its
 * tokens have a forward (not T5's embedding, which encoder and decoder read). Parameters with names
 * in several units (T5's `shared`, in encoder and decoder) belong to the unit around all of these,
 * for SIZE too.
 *
 * @param policy  NULL: the root alone
 * @param options of every unit, but that output_dtype is of what the root returns alone: units
 * inside hand tensors to each other. NULL: all defaults
 * @return FSDP_ERR_INVALID, with nothing changed, for a class that no module has, or none that can
 *         be a unit (the message lists those that can), and if a module is a unit already; else as
 *         fsdp_fully_shard(). If memory runs out, some are units: the tree can only be destroyed.
 *
 * Source: torch/distributed/fsdp/wrap.py.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_auto_wrap(fsdp_module *root,
                                                    const fsdp_wrap_policy *policy,
                                                    fsdp_group *group, fsdp_device *device,
                                                    const fsdp_fully_shard_options *options);
/** @} */

/** @name FullyShardedDataParallel (FSDP1) @{ */
/** torch.distributed.fsdp.ShardingStrategy. The hybrid ones want a mesh (replicate, shard); without
 * one the ranks of this host share the shards, and there is one replica. */
typedef enum fsdp_sharding_strategy {
    FSDP_SHARDING_FULL_SHARD,
    FSDP_SHARDING_SHARD_GRAD_OP, /**< parameters stay gathered from forward to backward */
    FSDP_SHARDING_NO_SHARD,
    FSDP_SHARDING_HYBRID_SHARD,      /**< FULL_SHARD within a replica */
    FSDP_SHARDING_HYBRID_SHARD_ZERO2 /**< SHARD_GRAD_OP within a replica */
} fsdp_sharding_strategy;

/** How users write a strategy and a prefetch, in the order of the enumerators and NULL-terminated:
 * fsdp_option.choices. @{ */
FSDP_API extern const char *const fsdp_sharding_strategy_choices[];
FSDP_API extern const char *const fsdp_backward_prefetch_choices[];
/** @} */

/**
 * Give the parameters of `module` itself their first values, as reset_parameters() does, by
 * fsdp_module_init(), or into fsdp_parameter_local() between fsdp_tensor_begin_write() and
 * _end_write(). Called on every rank, for every module with parameters of its own that a unit took
 * and that have no values then: neither loaded before nor rank 0's by sync_module_states. Ignored
 * parameters do not count; they may have no memory.
 */
typedef fsdp_status fsdp_param_init_fn(const char *path, fsdp_module *module, void *arg);

/** The arguments of FullyShardedDataParallel(). Zero-initialised: its defaults. */
typedef struct fsdp_fully_sharded_data_parallel_options {
    fsdp_sharding_strategy sharding_strategy;
    bool cpu_offload; /**< CPUOffload(offload_params=True): on the CPU nothing moves, it says so */
    const char
        *offload_dir; /**< with cpu_offload: moved to a file, see fsdp_offload_policy; NULL */
    const fsdp_wrap_policy *auto_wrap_policy; /**< NULL: the module alone. ModuleWrapPolicy is
                                                   FSDP_WRAP_TRANSFORMER */
    fsdp_backward_prefetch backward_prefetch;
    const fsdp_mixed_precision *mixed_precision; /**< NULL: nothing is cast */
    fsdp_module *const *ignored_modules;         /**< [n_ignored_modules] with all below them: their
                                                      parameters stay whole and are not reduced */
    size_t n_ignored_modules;
    fsdp_parameter *const *ignored_states; /**< [n_ignored_states] likewise */
    size_t n_ignored_states;
    fsdp_param_init_fn *param_init_fn; /**< NULL: values are loaded or drawn afterwards */
    void *param_init_arg;
    bool sync_module_states;   /**< values that the parameters have already become rank 0's */
    bool forward_prefetch;     /**< FSDP_FORWARD_STRICT */
    bool no_limit_all_gathers; /**< default: limit_all_gathers=True */
    /** Parameters always keep their names and shapes. Without it, as in PyTorch, frozen and
     * trainable ones in one unit are an error: set it for them. */
    bool use_orig_params;
    const fsdp_device_mesh *device_mesh; /**< see fsdp_fully_shard_options.mesh */
} fsdp_fully_sharded_data_parallel_options;

/**
 * FullyShardedDataParallel(module, ...): what the policy chooses and the module itself become
 * units, as by fsdp_auto_wrap(). Collective.
 *
 * @param group   process_group; borrowed
 * @param device  device_id: parameters get their memory there
 * @param options NULL: all defaults; copied
 * @return as fsdp_auto_wrap(); FSDP_ERR_INVALID with nothing changed for a mesh that does not fit
 *         the strategy; FSDP_ERR_INVALID naming the parameters for frozen and trainable ones in one
 *         unit without use_orig_params, and what param_init_fn returned: then the tree can only be
 *         destroyed
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_fully_sharded_data_parallel(fsdp_module *module, fsdp_group *group, fsdp_device *device,
                                 const fsdp_fully_sharded_data_parallel_options *options);
/** @} */

/** @name All-gather extensions @{ */
/**
 * What a parameter does around its gather, as fsdp_pre_all_gather() and fsdp_post_all_gather() of a
 * tensor subclass in FSDP2: it travels in a form of its own (float8, NF4), and every rank unpacks
 * it. Calls come in program order, the same on every rank.
 */
typedef struct fsdp_all_gather_extension {
    /** Bytes that `rows` rows of the parameter take on their way: the same answer on every rank. */
    size_t (*packed_bytes)(void *self, const fsdp_parameter *parameter, int64_t rows);
    /**
     * Write this rank's rows as they travel.
     * @param local this rank's rows as they are stored; there may be none
     * @param group over which more may be communicated (a common scale); NULL: this rank alone
     * @param packed [bytes] of packed_bytes(), 64-byte aligned
     */
    fsdp_status (*pre_all_gather)(void *self, const fsdp_parameter *parameter,
                                  const fsdp_tensor *local, fsdp_group *group, void *packed,
                                  size_t bytes);
    /**
     * Read the rows of one rank: called for each rank that has some.
     * @param rows out: those rows of what operations read, of param_dtype
     */
    fsdp_status (*post_all_gather)(void *self, const fsdp_parameter *parameter, const void *packed,
                                   size_t bytes, fsdp_tensor *rows);
    void *self; /**< borrowed: it outlives the parameter */
} fsdp_all_gather_extension;

/**
 * Set before fsdp_fully_shard() of its unit; NULL: none. Copied. What operations read of such a
 * parameter costs each rank the whole of it while its unit is gathered.
 * @return FSDP_ERR_STATE if the parameter is a unit's already
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_parameter_set_all_gather_extension(
    fsdp_parameter *parameter, const fsdp_all_gather_extension *extension);
/** @} */

/** @name Controls
 * Calls on a module that is a unit; with `recurse`, on every unit below it too, and the module need
 * be none itself. All ranks call them alike. They return FSDP_ERR_INVALID, with nothing changed, if
 * there is no unit, and take effect at the next forward or backward. Sources: FSDPModule of
 * torch/distributed/fsdp/_fully_shard, and FullyShardedDataParallel. @{ */

/**
 * Gather the unit's parameters now, and keep them until fsdp_unit_reshard(), which must come before
 * the next write to them (optimizer, init, load). Collective.
 * @return FSDP_ERR_INVALID if module is no unit; FSDP_ERR_STATE while it is being written or its
 *         full parameters are summoned.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_unit_unshard(fsdp_module *module);
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_unit_reshard(fsdp_module *module);

typedef struct fsdp_unshard_handle fsdp_unshard_handle;
/**
 * unshard(async_op=True): begin to gather the unit's parameters. Its next forward or backward uses
 * what was gathered, waits for the rest, and frees it as always; if none comes,
 * fsdp_unit_reshard() must, before the next write. Collective, without waiting for the others.
 * @param handle out: ended by fsdp_unshard_handle_wait(); NULL: nobody waits. The module outlives
 *               it.
 * @return as fsdp_unit_unshard()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_unit_unshard_async(fsdp_module *module,
                                                             fsdp_unshard_handle **handle);
/** Wait until the parameters have data, and free the handle. No effect on a unit that was resharded
 * meanwhile. Accepts NULL. Collective. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_unshard_handle_wait(fsdp_unshard_handle *handle);

/**
 * When `module` is entered in forward (in backward), gather these, in this order, in place of what
 * the order of execution would have been the reason for. Any depth; beyond two they wait for their
 * turn unless no_limit_all_gathers. What is then not used is dropped at the end of the forward (of
 * the backward).
 * @param modules units of the same tree; n 0: the implicit one again. Copied
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_set_modules_to_forward_prefetch(fsdp_module *module, fsdp_module *const *modules, size_t n);
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_set_modules_to_backward_prefetch(fsdp_module *module, fsdp_module *const *modules, size_t n);

/**
 * false: backward communicates no gradients. They add up whole in the rank's slot of the unit,
 * which stays taken (float32, the unit's size on every rank; of an embedding that one micro-step
 * looks up, these rows alone), micro-step after micro-step in the
 * order they come, each product added as it is computed; the first backward with true reduces the
 * sum over the ranks and divides it. This rounds differently from reducing each micro-step, whose
 * sums are one tree (see fsdp_scope_options.micro_step), and is the same in every run. A failure,
 * or a forward that fsdp_tape_reset() cancels, drops what has added up; so does micro_step 0 of
 * n_micro_steps > 1. A forward without a tape drops nothing. After a failure that dropped gradients
 * the step begins anew: a forward of a later micro_step, or the backward of one that was there, is
 * FSDP_ERR_STATE, and so is the backward of a loss whose part in them was dropped.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_requires_gradient_sync(fsdp_module *module,
                                                                     bool requires_gradient_sync,
                                                                     bool recurse);
/**
 * HSDP only. false: backward sums gradients over the ranks that a parameter is sharded over and not
 * over the replicas; micro-steps are added one by one, sharded, until a backward with true adds the
 * replicas'. What drops gradients that add up (above) drops these too.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_requires_all_reduce(fsdp_module *module,
                                                                  bool requires_all_reduce,
                                                                  bool recurse);
/** FSDP1's no_sync(): fsdp_set_requires_gradient_sync(false) for all units until the end, then what
 * it was before. FSDP_ERR_INVALID for a unit inside of another, FSDP_ERR_STATE if it has begun
 * already, or has not. @{ */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_no_sync_begin(fsdp_module *root);
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_no_sync_end(fsdp_module *root);
/** @} */

/** In place of the option's value. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_reshard_after_forward(fsdp_module *module,
                                                                    bool reshard_after_forward,
                                                                    bool recurse);
/** false: parameters stay after backward, so that the next forward gathers nothing: for all
 * micro-steps but the last. Before the next write, fsdp_unit_reshard() must come, or a backward
 * with true. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_reshard_after_backward(fsdp_module *module,
                                                                     bool reshard_after_backward,
                                                                     bool recurse);
/** false: the end of a backward does not wait for the reduce of the unit that was left last; it
 * runs in the next backward. For all backwards but the last before the optimizer. Of the whole tree
 * that the unit is in. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_is_last_backward(fsdp_module *module,
                                                               bool is_last_backward);
/** false: the unit's parameters are not gathered for backward: for one whose operations do not read
 * them there (an embedding). An operation that does fails and says so, on the meta device too. No
 * effect while the module, or one below it, is checkpointed. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_unshard_in_backward(fsdp_module *module,
                                                                  bool unshard_in_backward);

/**
 * From now on gradients are sums over ranks and micro-steps, divided by `factor` once, at the last
 * micro-step. 0: the default, world_size (the mean of the ranks' losses, as FSDP2). A token mean
 * sets the number of label tokens of the whole step. For every unit of `root`.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_gradient_divide_factor(fsdp_module *root,
                                                                     double factor);

/** Sees, and may change, this rank's rows of a gradient. A failure fails the backward. */
typedef fsdp_status fsdp_all_reduce_hook(fsdp_parameter *parameter, fsdp_tensor *rows, void *arg);
/** Called for each gradient of the unit after it was reduced and divided, before it becomes, or is
 * added to, the parameter's. NULL: none. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_all_reduce_hook(fsdp_module *module,
                                                              fsdp_all_reduce_hook *hook,
                                                              void *arg);
/** @} */

/** @name summon_full_params (FSDP1): whole parameters between steps, to look at or to change @{ */
/** Zero-initialised: FSDP.summon_full_params()'s defaults. */
typedef struct fsdp_summon_full_params_options {
    bool no_recurse;     /**< recurse=False: of the outermost units in the module alone */
    bool no_writeback;   /**< writeback=False: what is changed in them is lost at the end */
    bool rank0_only;     /**< only the first rank of the units' groups has them; others get NULL.
                              Wants no_writeback */
    bool offload_to_cpu; /**< where they are: changes nothing */
    bool with_grads;     /**< gradients, too */
} fsdp_summon_full_params_options;

/** Parameters that are summoned. */
typedef struct fsdp_full_params fsdp_full_params;

/**
 * Gather the parameters of the units in `module` whole, as copies of each rank's own in the dtype
 * of their masters, all at once. Collective. Until the end the units can neither run nor be written
 * (optimizer, init, load), which is FSDP_ERR_STATE.
 *
 * @param options NULL: all defaults; copied
 * @param full    out: owned by the caller, ended by fsdp_summon_full_params_end() before the module
 * @return FSDP_ERR_INVALID if module has no unit, FSDP_ERR_STATE within a forward or backward, on
 *         meta or if a unit is summoned already, FSDP_ERR_UNSUPPORTED for rank0_only with
 * writeback; nothing was changed then
 *
 * Source: FullyShardedDataParallel.summon_full_params().
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_summon_full_params_begin(
    fsdp_module *module, const fsdp_summon_full_params_options *options, fsdp_full_params **full);
/** The whole tensor, contiguous, to be read and written; NULL if it is not on this rank, or of no
 * unit that is summoned. Borrowed. */
FSDP_API fsdp_tensor *fsdp_full_params_get(const fsdp_full_params *full,
                                           const fsdp_parameter *parameter);
/** Its gradient likewise; NULL also without one, or without with_grads. */
FSDP_API fsdp_tensor *fsdp_full_params_grad(const fsdp_full_params *full,
                                            const fsdp_parameter *parameter);
/** With writeback each rank stores its own rows of its tensors, gradients included. Collective;
 * ends `full` also where that fails. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_summon_full_params_end(fsdp_full_params *full);
/** @} */

#ifdef __cplusplus
}
#endif
