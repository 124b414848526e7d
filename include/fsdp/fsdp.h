/**
 * @file
 * fully_shard: shard parameters, gradients and optimizer state over ranks, as PyTorch's FSDP2 does.
 *
 * Each module given to fsdp_fully_shard() becomes a unit. The parameters of a unit, except those of
 * units inside it, are gathered together before its forward and before its backward, and freed
 * after each. Their gradients are reduced together. Call fsdp_fully_shard() bottom up: first for
 * the blocks, then for the root.
 *
 * Every fsdp_module_call() of a unit gathers its parameters, even if the call runs another function
 * than the module's own forward. (PyTorch needs register_fsdp_forward_method() for that.)
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
 * torch.distributed.fsdp.MixedPrecisionPolicy. A zero-initialised policy uses float32 everywhere.
 *
 * Zero means float32 here, not PyTorch's None. In FSDP2, param_dtype=None means the parameter's own
 * dtype, and reduce_dtype=None means param_dtype. The results differ in two cases. If the master
 * weights are bfloat16, a zero policy computes and reduces in float32, but MixedPrecisionPolicy()
 * computes and reduces in bfloat16; set param_dtype and reduce_dtype to bfloat16 to get PyTorch's
 * behaviour. And {.param_dtype = bfloat16} reduces in float32, but
 * MixedPrecisionPolicy(param_dtype=torch.bfloat16) reduces in bfloat16.
 *
 * Inputs and outputs are the floating-point tensors that a module call passes and returns. Where
 * such a tensor is cast, its gradient is cast back. Tables that operations always read in float32
 * (rotary tables, T5's position bias) keep their dtype. float16 needs an fsdp_grad_scaler.
 */
typedef struct fsdp_mp_policy {
    fsdp_dtype param_dtype;  /**< dtype of compute and all-gather: float32, bfloat16 or float16 */
    fsdp_dtype reduce_dtype; /**< gradients are rounded to this dtype, then summed in float32 */
    fsdp_dtype master_dtype; /**< dtype of the sharded parameters: float32 or bfloat16 */
    bool set_output_dtype;   /**< cast the outputs of the forward to output_dtype */
    fsdp_dtype output_dtype; /**< ignored unless set_output_dtype is true */
    bool no_cast_forward_inputs;   /**< do not cast inputs; default: cast them to param_dtype */
    bool cast_root_forward_inputs; /**< FSDP1: the outermost unit casts its inputs even with
                                        no_cast_forward_inputs */
    /** FSDP1: the values of buffers (rotary tables) are rounded to this dtype; their memory stays
     * float32. Only the outermost unit's value counts. */
    fsdp_dtype buffer_dtype;
} fsdp_mp_policy;

/**
 * torch.distributed.fsdp.MixedPrecision (FSDP1). A zero-initialised struct is MixedPrecision(),
 * which sets no dtype and casts nothing.
 */
typedef struct fsdp_mixed_precision {
    bool set_param_dtype, set_reduce_dtype, set_buffer_dtype; /**< false: not set (None); the dtype
                                                                   then has the default below */
    fsdp_dtype param_dtype;  /**< default: compute in the parameters' own dtype */
    fsdp_dtype reduce_dtype; /**< default: param_dtype, or float32 if param_dtype is not set */
    fsdp_dtype buffer_dtype; /**< see fsdp_mp_policy */
    bool keep_low_precision_grads;    /**< setting this is an error: sharded gradients are always
                                           float32 */
    bool cast_forward_inputs;         /**< every unit casts its inputs to param_dtype */
    bool no_cast_root_forward_inputs; /**< default: the outermost unit casts its inputs even
                                           without cast_forward_inputs */
} fsdp_mixed_precision;

/** Get one of the FSDP tutorials' policies by name: "bfSixteen", "fpSixteen", "fp32_policy" or
 * "grad_bf16". For any other name the result is FSDP_ERR_INVALID. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_mixed_precision_preset(const char *name,
                                                                 fsdp_mixed_precision *mp);
/**
 * Convert an FSDP1 policy to an equivalent fsdp_mp_policy whose master_dtype is the given one.
 * @return FSDP_ERR_UNSUPPORTED, naming the field, for keep_low_precision_grads, and for dtypes that
 *         the fields of fsdp_mp_policy do not allow
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_mp_policy_from_fsdp1(const fsdp_mixed_precision *mp,
                                                               fsdp_dtype master_dtype,
                                                               fsdp_mp_policy *policy);

typedef enum fsdp_offload_kind {
    FSDP_OFFLOAD_NONE,
    FSDP_OFFLOAD_CPU, /**< CPUOffloadPolicy, CPUOffload(offload_params=True). Prints a notice and
                           does nothing else, because parameters on the CPU device are in host
                           memory anyway */
    FSDP_OFFLOAD_DIR, /**< offload to a file in a directory */
} fsdp_offload_kind;

/**
 * Where master weights and optimizer state are while they are not used.
 *
 * With FSDP_OFFLOAD_DIR each rank has a file in `dir`. The file has no name, only the user who runs
 * the program can read it, and it disappears with the process. Disk blocks are reserved when memory
 * is allocated, so a full disk is reported at that time. Two or three units are in memory at the
 * same time: a thread reads the next unit ahead and writes the previous one back. Every unit is
 * gathered into a copy, even in float32. Results have the same bits as without offload.
 */
typedef struct fsdp_offload_policy {
    fsdp_offload_kind kind;
    const char *dir; /**< FSDP_OFFLOAD_DIR: created if missing; must be the same for all units */
} fsdp_offload_policy;

typedef enum fsdp_reshard {
    FSDP_RESHARD_DEFAULT, /**< as in FSDP2: false for the root, true for other units */
    FSDP_RESHARD_TRUE,    /**< free after forward, gather again for backward (ZeRO-3) */
    FSDP_RESHARD_FALSE,   /**< keep until after backward (ZeRO-2) */
    /** FSDP2's integer: backward gathers among only reshard_ranks ranks. The ranks of a host share
     * one copy, which is kept until after backward. Reading parameters between forward and backward
     * is an error. */
    FSDP_RESHARD_TO_SMALLER,
} fsdp_reshard;

/** torch.distributed.fsdp.BackwardPrefetch: when to gather the unit that backward needs next. */
typedef enum fsdp_backward_prefetch {
    FSDP_BACKWARD_PRE,  /**< before the current unit computes: most overlap, two units in memory */
    FSDP_BACKWARD_POST, /**< after the current unit has computed and is freed: less memory */
    FSDP_BACKWARD_NONE, /**< only when backward needs it */
} fsdp_backward_prefetch;

/** Which unit forward gathers ahead of time. */
typedef enum fsdp_forward_prefetch {
    FSDP_FORWARD_IMPLICIT, /**< the unit that came next in the previous iteration, as long as the
                                order of units is the same */
    FSDP_FORWARD_STRICT,   /**< FSDP1's forward_prefetch=True: like FSDP_FORWARD_IMPLICIT, but if an
                                iteration enters units in another order than the first iteration
                                did, it fails with FSDP_ERR_STATE before it communicates */
    FSDP_FORWARD_NONE,     /**< nothing */
} fsdp_forward_prefetch;

/**
 * Return the dimension along which to shard a parameter. The result must be the same on every rank.
 * @param name the parameter's name within the unit's module
 * @return the i of Shard(i); a negative i counts from the end: -1 is the last dimension
 */
typedef int fsdp_shard_placement_fn(const char *name, const fsdp_parameter *parameter, void *arg);

typedef struct fsdp_fully_shard_options {
    fsdp_mp_policy mp_policy;
    fsdp_reshard reshard_after_forward;
    /** For FSDP_RESHARD_TO_SMALLER: a divisor of the number of shard ranks. 1 has the effect of
     * FSDP_RESHARD_FALSE. The number of shard ranks has the effect of FSDP_RESHARD_TRUE. */
    int reshard_ranks;
    /** NO_SHARD: every rank keeps whole master weights, gradients and optimizer state. The ranks of
     * a host share one copy of each frozen parameter. Writing a frozen parameter is collective, and
     * the values of the first rank are used. */
    bool no_shard;
    /** Borrowed; must outlive the module. 1-D: parameters are sharded over all ranks of the mesh.
     * 2-D (replicate, shard): HSDP. Parameters are sharded over dimension 1; ranks along dimension
     * 0 hold the same shards, and gradients are reduced over them, too. NULL: all ranks of
     * `group`. */
    const fsdp_device_mesh *mesh;
    /** NULL: Shard(0). A parameter that is sharded along another dimension is gathered into a copy,
     * even in float32. In the gradient norm, the parts of its gradient are added by rank, not by
     * row, so the last bits of the norm depend on the number of ranks. Adafactor needs whole rows
     * and refuses such a parameter. */
    fsdp_shard_placement_fn *shard_placement_fn;
    void *shard_placement_arg;
    /** [n_ignored_params] parameters that become part of no unit. Every rank holds them whole, in
     * memory that the caller allocates (fsdp_module_to_empty()). Their gradients are not reduced.
     * The array is borrowed for the call. */
    fsdp_parameter *const *ignored_params;
    size_t n_ignored_params;
    /** Give all ranks the values that rank 0 has. Before the call, the parameters of the other
     * ranks need no memory. */
    bool sync_module_states;
    fsdp_backward_prefetch
        backward_prefetch;                  /**< the outermost unit's value counts for all units */
    fsdp_forward_prefetch forward_prefetch; /**< the outermost unit's value counts for all units */
    /** Default: at most two units are gathered ahead of the one that computes. true: any number.
     * One more buffer is then used, so that a rank can gather a unit while its peers still compute
     * the previous one. The outermost unit's value counts. */
    bool no_limit_all_gathers;
    fsdp_offload_policy offload_policy; /**< default: nothing is offloaded */
} fsdp_fully_shard_options;

/**
 * Make `module` a unit over `group` and allocate memory for its parameters. A parameter that has
 * memory already keeps its values: each rank takes its rows. Otherwise the contents are undefined.
 *
 * Collective. Must come before the first forward of the module or of a module around it. A failure
 * changes nothing.
 *
 * Afterwards fsdp_parameter_local() is a DTensor of this rank's rows of the master weights, and
 * fsdp_parameter_data() has data only between unshard and reshard. A parameter that is also part of
 * another tree may outlive the unit. It then has no memory, values or gradient, like a new
 * parameter.
 *
 * @param group   borrowed; must outlive the module. NULL or a group of one rank: no communication.
 *                With options->mesh: the ranks of the mesh, or NULL
 * @param device  this rank's device; all units of a tree use the same device and group
 * @param options copied; NULL: all defaults
 * @return FSDP_ERR_INVALID if the module is a unit already; if one of its parameters belongs to a
 *         unit that is not inside it (the message names both); if the mesh has other ranks than
 *         `group`, or more than 2 dimensions; or if reshard_ranks does not divide the number of
 *         shard ranks. FSDP_ERR_UNSUPPORTED for a dtype that mp_policy does not allow.
 *         FSDP_ERR_STATE if a module around `module` is a unit, or if a unit inside it has run
 *         already
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_fully_shard(fsdp_module *module, fsdp_group *group,
                                                      fsdp_device *device,
                                                      const fsdp_fully_shard_options *options);
/**
 * Make several modules one unit, like fully_shard([norm, head]). They are gathered when the first
 * of them runs and freed after the last one, or when the outermost unit's forward ends. The same
 * applies in backward. A parameter that two of the modules share belongs to this unit.
 *
 * fsdp_module_is_unit() is true for each of the modules, and a control that is set on one of them
 * applies to all.
 *
 * @param modules [n] modules of one tree, none inside another; the array is copied
 * @return as fsdp_fully_shard(); also FSDP_ERR_INVALID, naming two modules, if they cannot be one
 *         unit
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_fully_shard_modules(fsdp_module *const *modules, size_t n, fsdp_group *group,
                         fsdp_device *device, const fsdp_fully_shard_options *options);
FSDP_API bool fsdp_module_is_unit(const fsdp_module *module);

/** Properties of a unit, without running it. */
typedef struct fsdp_unit_info {
    const fsdp_module *first_module; /**< the unit's first module */
    fsdp_group *group; /**< ranks that the parameters are sharded over; borrowed; NULL: one rank */
    fsdp_group *replicate_group;  /**< HSDP: ranks that hold the same rows; else NULL */
    const fsdp_device_mesh *mesh; /**< fsdp_fully_shard_options.mesh */
    int mesh_ndim;                /**< 1 without a mesh */
    /** [mesh_ndim] placements of the unit's parameters. Parameters that shard_placement_fn() shards
     * along another dimension have other placements. */
    fsdp_placement placements[FSDP_MAX_MESH_DIMS];
    fsdp_mp_policy mp_policy;
    bool reshard_after_forward; /**< for FSDP_RESHARD_DEFAULT: false if this is the outermost unit
                                     at present, else true */
    bool no_shard;
    fsdp_offload_kind offload;
    size_t n_parameters;
    int64_t frozen_numel;       /**< elements of frozen parameters; counted in `numel`, too */
    int64_t numel, local_numel; /**< elements of the whole parameters, and of this rank's rows */
    int reshard_ranks;          /**< for FSDP_RESHARD_TO_SMALLER; else 0 */
    bool is_unsharded;          /**< the unit's parameters have data now */
    bool is_prefetched;         /**< the unit's gather has begun and is not complete */
    bool is_held;               /**< unsharded by fsdp_unit_unshard(), until fsdp_unit_reshard() */
    fsdp_backward_prefetch backward_prefetch;       /**< value of the outermost unit */
    fsdp_forward_prefetch forward_prefetch;         /**< value of the outermost unit */
    bool limit_all_gathers;                         /**< value of the outermost unit */
    size_t n_forward_prefetch, n_backward_prefetch; /**< number of explicitly prefetched modules */
    bool requires_gradient_sync;                    /**< also false within no_sync */
    bool requires_all_reduce;
    bool reshard_after_backward, unshard_in_backward, is_last_backward;
    double gradient_divide_factor; /**< 0: world_size */
} fsdp_unit_info;

/** @return FSDP_ERR_INVALID if the module is not a unit */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_unit_get_info(const fsdp_module *module,
                                                        fsdp_unit_info *info);

typedef enum fsdp_print_form {
    FSDP_PRINT_FSDP2, /**< (0): FSDPT5Block( */
    FSDP_PRINT_FSDP1, /**< (0): FullyShardedDataParallel( (_fsdp_wrapped_module): T5Block( */
} fsdp_print_form;

/**
 * Print the tree as torch prints modules. Equal neighbours in a ModuleList are printed once:
 * "(0-5): 6 x T5Block(". The line of a unit ends with its dtypes and the number of its elements on
 * this rank: "# bfloat16 of float32, reduced in float32, returns float32, 64 of 154 elements". The
 * first dtype is param_dtype. master_dtype and reduce_dtype are printed only if they differ from
 * it, and output_dtype only if it is set. fsdp_module_set_extra_repr() sets the text in a layer's
 * parentheses.
 * @return FSDP_ERR_IO if writing fails
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_print(const fsdp_module *module, FILE *out,
                                                       fsdp_print_form form);

/** @name Wrap policies: torch.distributed.fsdp.wrap @{ */
typedef enum fsdp_wrap_kind {
    FSDP_WRAP_TRANSFORMER, /**< modules of the given classes: transformer_auto_wrap_policy */
    FSDP_WRAP_SIZE,        /**< modules with many parameters: size_based_auto_wrap_policy */
    FSDP_WRAP_NONE,        /**< the root alone */
    FSDP_WRAP_CUSTOM,      /**< modules that a function chooses: CustomPolicy */
} fsdp_wrap_kind;

/**
 * Decide whether a module becomes a unit. Called for every module below the root, children first.
 * The result must be the same on every rank.
 * @param path    dotted path of the module below the root
 * @param options in: the root's options; out: this unit's options
 */
typedef bool fsdp_wrap_fn(const char *path, const fsdp_module *module, void *arg,
                          fsdp_fully_shard_options *options);

/**
 * Set the options of one unit, as in fully_shard(layer, mp_policy=...). Called for the root, with
 * path "", and for every module that a policy of any kind has chosen. It must set the same options
 * on every rank.
 * @param options in: the root's options; out: this unit's options
 */
typedef void fsdp_unit_options_fn(const char *path, const fsdp_module *module, void *arg,
                                  fsdp_fully_shard_options *options);

/** Selects the modules that become units. Fields that belong to another kind are ignored. */
typedef struct fsdp_wrap_policy {
    fsdp_wrap_kind kind;
    /** TRANSFORMER: names of the classes whose modules become units, NULL-terminated. A chosen
     * module may be inside another one. fsdp_model_info.block_classes has the names for a model. */
    const char *const *transformer_layer_cls;
    /** SIZE: a module becomes a unit if its parameters, without those of the units inside it, have
     * at least this many elements. Ignored parameters are not counted. 0: 100000000. */
    int64_t min_num_params;
    /** SIZE: classes whose modules never become units, NULL-terminated. NULL: ModuleList,
     * ModuleDict. */
    const char *const *exclude_wrap_modules;
    /** SIZE: classes whose modules never become units, nor do modules inside them. NULL-terminated.
     * NULL: MultiheadAttention. */
    const char *const *force_leaf_modules;
    fsdp_wrap_fn *custom; /**< CUSTOM */
    void *custom_arg;
    /** All kinds: chosen modules of the same class that follow each other in a list are combined,
     * this many per unit (fsdp_fully_shard_modules()). A unit has the options of its first module.
     * 0 or 1: each module is a unit of its own. */
    int modules_per_unit;
    /** All kinds: [n_joint_modules] modules that become one unit (fsdp_fully_shard_modules()), even
     * if the policy does not choose them. The unit has the options of its first module. The policy
     * applies to modules inside them as usual. */
    fsdp_module *const *joint_modules;
    size_t n_joint_modules;
    fsdp_unit_options_fn *unit_options; /**< NULL: all units have the root's options */
    void *unit_options_arg;
} fsdp_wrap_policy;

/**
 * FullyShardedDataParallel(root, auto_wrap_policy=...): call fsdp_fully_shard() for the modules
 * that the policy chooses, children first, and then for `root`. Collective.
 *
 * Only a module with a forward of its own can be a unit. A module that only has parameters for the
 * module around it (Linear, LayerNorm, Embedding) is a part of that module: SIZE never chooses it,
 * and the other kinds return an error if it is chosen. A model's head and its token embedding have
 * a forward of their own. T5's embedding, which encoder and decoder read, has none. A parameter
 * with names in several units, such as T5's `shared`, belongs to the unit around all of them. SIZE,
 * too, counts it in that unit.
 *
 * @param policy  NULL: the root only
 * @param options options of every unit. output_dtype applies to the root only, because units inside
 *                it pass tensors to each other. NULL: all defaults
 * @return FSDP_ERR_INVALID, with nothing changed, if the policy names a class that no module has or
 *         whose modules cannot be units (the message lists the classes that can), or if a module is
 *         a unit already; and the errors of fsdp_fully_shard(). If memory runs out, some modules
 *         are already units, and the tree can only be destroyed
 *
 * Source: torch/distributed/fsdp/wrap.py.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_auto_wrap(fsdp_module *root,
                                                    const fsdp_wrap_policy *policy,
                                                    fsdp_group *group, fsdp_device *device,
                                                    const fsdp_fully_shard_options *options);
/** @} */

/** @name FullyShardedDataParallel (FSDP1) @{ */
/** torch.distributed.fsdp.ShardingStrategy. The hybrid strategies need a mesh (replicate, shard);
 * without a mesh, the parameters are sharded over the ranks of this host, with one replica. */
typedef enum fsdp_sharding_strategy {
    FSDP_SHARDING_FULL_SHARD,
    FSDP_SHARDING_SHARD_GRAD_OP, /**< parameters stay gathered from forward to backward */
    FSDP_SHARDING_NO_SHARD,
    FSDP_SHARDING_HYBRID_SHARD,      /**< FULL_SHARD within a replica */
    FSDP_SHARDING_HYBRID_SHARD_ZERO2 /**< SHARD_GRAD_OP within a replica */
} fsdp_sharding_strategy;

/** The names of sharding strategies and backward prefetches in command-line flags, for
 * fsdp_option.choices: in the order of the enumerators, NULL-terminated. @{ */
FSDP_API extern const char *const fsdp_sharding_strategy_choices[];
FSDP_API extern const char *const fsdp_backward_prefetch_choices[];
/** @} */

/**
 * A function that initialises the parameters of `module` itself, not those of modules below it,
 * like reset_parameters(). It calls fsdp_module_init(), or writes fsdp_parameter_local() between
 * fsdp_tensor_begin_write() and fsdp_tensor_end_write().
 *
 * It is called on every rank for every module that has sharded parameters of its own without
 * values. These are parameters that were not loaded and that sync_module_states did not take from
 * rank 0. Ignored parameters do not count; they may have no memory.
 */
typedef fsdp_status fsdp_param_init_fn(const char *path, fsdp_module *module, void *arg);

/** The arguments of FullyShardedDataParallel(). Zero means default. */
typedef struct fsdp_fully_sharded_data_parallel_options {
    fsdp_sharding_strategy sharding_strategy;
    bool cpu_offload; /**< CPUOffload(offload_params=True): prints a notice on the CPU device and
                           does nothing else */
    const char
        *offload_dir; /**< with cpu_offload: offload to a file, see fsdp_offload_policy; or NULL */
    const fsdp_wrap_policy *auto_wrap_policy; /**< NULL: only the module itself is a unit.
                                                   FSDP_WRAP_TRANSFORMER corresponds to
                                                   ModuleWrapPolicy */
    fsdp_backward_prefetch backward_prefetch;
    const fsdp_mixed_precision *mixed_precision; /**< NULL: nothing is cast */
    fsdp_module *const
        *ignored_modules; /**< [n_ignored_modules] the parameters of these modules and of all
                               modules below them stay whole, and their gradients are not reduced */
    size_t n_ignored_modules;
    fsdp_parameter *const
        *ignored_states; /**< [n_ignored_states] these parameters are ignored, too */
    size_t n_ignored_states;
    fsdp_param_init_fn *param_init_fn; /**< NULL: values are loaded or drawn later */
    void *param_init_arg;
    bool sync_module_states;   /**< all ranks get the values that rank 0 has */
    bool forward_prefetch;     /**< FSDP_FORWARD_STRICT */
    bool no_limit_all_gathers; /**< default: limit_all_gathers=True */
    /** Parameters always keep their names and shapes. As in PyTorch, frozen and trainable
     * parameters in one unit are an error unless this is set. */
    bool use_orig_params;
    const fsdp_device_mesh *device_mesh; /**< see fsdp_fully_shard_options.mesh */
} fsdp_fully_sharded_data_parallel_options;

/**
 * FullyShardedDataParallel(module, ...): the modules that the policy chooses and the module itself
 * become units, as by fsdp_auto_wrap(). Collective.
 *
 * @param group   process_group; borrowed
 * @param device  device_id: where the parameters are allocated
 * @param options NULL: all defaults; copied
 * @return as fsdp_auto_wrap(); FSDP_ERR_INVALID with nothing changed for a mesh that does not fit
 *         the strategy. After one of the following errors the tree can only be destroyed:
 *         FSDP_ERR_INVALID, naming the parameters, if a unit has frozen and trainable parameters
 *         without use_orig_params; any failure of param_init_fn
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_fully_sharded_data_parallel(fsdp_module *module, fsdp_group *group, fsdp_device *device,
                                 const fsdp_fully_sharded_data_parallel_options *options);
/** @} */

/** @name All-gather extensions @{ */
/**
 * Experimental. Functions that convert a parameter before and after its all-gather, like
 * fsdp_pre_all_gather() and fsdp_post_all_gather() of a tensor subclass in FSDP2. The parameter is
 * communicated in a packed form (float8, NF4), which every rank unpacks. Every rank makes the calls
 * in the same order.
 */
typedef struct fsdp_all_gather_extension {
    /** Return the number of bytes of `rows` rows in packed form. It must be the same on every
     * rank. */
    size_t (*packed_bytes)(void *self, const fsdp_parameter *parameter, int64_t rows);
    /**
     * Pack this rank's rows.
     * @param local  this rank's rows as they are stored; may have no rows
     * @param group  for further communication, such as a common scale; NULL if there is only one
     *               rank
     * @param packed [bytes] of packed_bytes(), 64-byte aligned
     */
    fsdp_status (*pre_all_gather)(void *self, const fsdp_parameter *parameter,
                                  const fsdp_tensor *local, fsdp_group *group, void *packed,
                                  size_t bytes);
    /**
     * Unpack the rows of one rank. Called for each rank that has rows.
     * @param rows out: the unpacked rows, of param_dtype
     */
    fsdp_status (*post_all_gather)(void *self, const fsdp_parameter *parameter, const void *packed,
                                   size_t bytes, fsdp_tensor *rows);
    void *self; /**< borrowed; must outlive the parameter */
} fsdp_all_gather_extension;

/**
 * Set the extension of a parameter, before fsdp_fully_shard() of its unit. Copied; NULL: none.
 * While its unit is gathered, each rank holds the whole unpacked parameter.
 * @return FSDP_ERR_STATE if the parameter belongs to a unit already
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_parameter_set_all_gather_extension(
    fsdp_parameter *parameter, const fsdp_all_gather_extension *extension);
/** @} */

/** @name Controls
 * These functions need a module that is a unit. With `recurse` they apply to every unit below the
 * module, too, and the module itself need not be a unit. All ranks must make the same calls. The
 * calls take effect at the next forward or backward, and return FSDP_ERR_INVALID, with nothing
 * changed, if there is no unit. Sources: FSDPModule of torch/distributed/fsdp/_fully_shard, and
 * FullyShardedDataParallel. @{ */

/**
 * Gather the unit's parameters now and keep them until fsdp_unit_reshard(), which must come before
 * the next write to them (optimizer, init, load). Collective.
 * @return FSDP_ERR_INVALID if the module is not a unit; FSDP_ERR_STATE while its parameters are
 *         being written or summoned
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_unit_unshard(fsdp_module *module);
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_unit_reshard(fsdp_module *module);

typedef struct fsdp_unshard_handle fsdp_unshard_handle;
/**
 * unshard(async_op=True): start gathering the unit's parameters. The unit's next forward or
 * backward waits until the gather is complete, and frees the parameters as usual. If neither
 * follows, fsdp_unit_reshard() must come before the next write. Collective, without waiting for the
 * peers.
 * @param handle out: ended by fsdp_unshard_handle_wait() before the module is destroyed; NULL if
 *               not wanted
 * @return as fsdp_unit_unshard()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_unit_unshard_async(fsdp_module *module,
                                                             fsdp_unshard_handle **handle);
/** Wait until the parameters have data, and free the handle. Does not wait if the unit was
 * resharded in the meantime. Accepts NULL. Collective. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_unshard_handle_wait(fsdp_unshard_handle *handle);

/**
 * Set the units to gather, in this order, when forward (or backward) enters `module`. They replace
 * the units that are prefetched by default. Their number is not limited, but all except the first
 * two wait for their turn unless no_limit_all_gathers is set. Units that are gathered but not used
 * are freed at the end of the forward (or backward).
 * @param modules [n] units of the same tree; copied. n == 0 restores implicit prefetch
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_set_modules_to_forward_prefetch(fsdp_module *module, fsdp_module *const *modules, size_t n);
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_set_modules_to_backward_prefetch(fsdp_module *module, fsdp_module *const *modules, size_t n);

/**
 * false: backward communicates no gradients. Whole gradients add up, one micro-step after another,
 * in the unit's float32 gradient buffer, which stays allocated on every rank. The buffer is as
 * large as the unit, with one exception: after the first micro-step, it has only those rows of an
 * embedding's gradient that were looked up. It gets the other rows when a second micro-step is
 * added. The first backward that runs with true reduces the sum over the ranks and divides it.
 *
 * Results are the same in every run, but they are rounded differently from those with true, where
 * the gradients of all ranks and micro-steps are summed as one tree.
 *
 * The sums are dropped when a forward or backward fails, when fsdp_tape_reset() cancels a forward,
 * and when a forward has micro_step 0 and n_micro_steps is above 1. A forward without a tape drops
 * nothing. After a failure that dropped gradients, the step must start again: a forward with a
 * later micro_step returns FSDP_ERR_STATE, and so does the backward of a loss whose gradients were
 * dropped.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_requires_gradient_sync(fsdp_module *module,
                                                                     bool requires_gradient_sync,
                                                                     bool recurse);
/**
 * HSDP only. false: backward sums gradients over the ranks that a parameter is sharded over, but
 * not over the replicas. The sharded gradients of the micro-steps are added up, one after another.
 * A backward with true also adds the sums of the other replicas. The sums are dropped in the same
 * cases as with fsdp_set_requires_gradient_sync().
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_requires_all_reduce(fsdp_module *module,
                                                                  bool requires_all_reduce,
                                                                  bool recurse);
/** FSDP1's no_sync(): fsdp_set_requires_gradient_sync(false) for all units between begin and end;
 * end restores the previous value. FSDP_ERR_INVALID for a unit inside another one. FSDP_ERR_STATE
 * if begin is called twice without an end, or end without a begin. @{ */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_no_sync_begin(fsdp_module *root);
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_no_sync_end(fsdp_module *root);
/** @} */

/** Replace the value of fsdp_fully_shard_options.reshard_after_forward. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_reshard_after_forward(fsdp_module *module,
                                                                    bool reshard_after_forward,
                                                                    bool recurse);
/** false: keep parameters unsharded after backward, so that the next forward need not gather them.
 * Use false for all micro-steps but the last. Before the next write, call fsdp_unit_reshard() or
 * run a backward with true. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_reshard_after_backward(fsdp_module *module,
                                                                     bool reshard_after_backward,
                                                                     bool recurse);
/** false: a backward ends without reducing the gradients of its last unit; the next backward
 * reduces them. Use false for all backwards but the last one before the optimizer step. Applies to
 * the unit's whole tree. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_is_last_backward(fsdp_module *module,
                                                               bool is_last_backward);
/** false: do not gather the unit's parameters in backward. Use false for a unit whose operations do
 * not read parameters in backward, such as an embedding. An operation that reads them anyway
 * returns an error, on the meta device too. No effect while the module, or one below it, uses
 * activation checkpointing. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_unshard_in_backward(fsdp_module *module,
                                                                  bool unshard_in_backward);

/**
 * Set the number by which gradients are divided. Gradients are sums over ranks and micro-steps, and
 * are divided once, at the last micro-step. 0: world_size, the default, which gives gradients of
 * the mean of the ranks' losses, as in FSDP2. For a mean over tokens, set it to the number of label
 * tokens of the whole step. Applies to every unit of `root`.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_gradient_divide_factor(fsdp_module *root,
                                                                     double factor);

/** A function that reads, and may change, this rank's rows of a gradient. If it fails, the backward
 * fails. */
typedef fsdp_status fsdp_all_reduce_hook(fsdp_parameter *parameter, fsdp_tensor *rows, void *arg);
/** Set a function that is called for each gradient of the unit after it was reduced and divided,
 * and before it is added to the parameter's gradient. NULL: none. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_all_reduce_hook(fsdp_module *module,
                                                              fsdp_all_reduce_hook *hook,
                                                              void *arg);
/** @} */

/** @name summon_full_params (FSDP1): whole parameters between steps, to read or change @{ */
/** The arguments of FSDP.summon_full_params(). Zero means default. */
typedef struct fsdp_summon_full_params_options {
    bool no_recurse;     /**< recurse=False: only the outermost units in the module */
    bool no_writeback;   /**< writeback=False: changes are lost at the end */
    bool rank0_only;     /**< only the first rank of each unit's group gets the parameters, and the
                              other ranks get NULL; requires no_writeback = true */
    bool offload_to_cpu; /**< no effect: parameters are in host memory anyway */
    bool with_grads;     /**< summon gradients, too */
} fsdp_summon_full_params_options;

/** The summoned parameters. */
typedef struct fsdp_full_params fsdp_full_params;

/**
 * Gather the whole parameters of all units in `module`, as private copies of each rank, in the
 * dtype of the master weights. Collective. Until fsdp_summon_full_params_end(), running the units
 * or writing their parameters (optimizer, init, load) returns FSDP_ERR_STATE.
 *
 * @param options NULL: all defaults; copied
 * @param full    out: owned by the caller, ended by fsdp_summon_full_params_end() before the module
 *                is destroyed
 * @return FSDP_ERR_INVALID if the module has no unit; FSDP_ERR_STATE within a forward or backward,
 *         on meta, or if a unit is summoned already; FSDP_ERR_UNSUPPORTED for rank0_only with
 *         writeback. In each case nothing has changed
 *
 * Source: FullyShardedDataParallel.summon_full_params().
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_summon_full_params_begin(
    fsdp_module *module, const fsdp_summon_full_params_options *options, fsdp_full_params **full);
/** Get the whole tensor, contiguous, to read and write. NULL if this rank does not have it or its
 * unit is not summoned. Borrowed. */
FSDP_API fsdp_tensor *fsdp_full_params_get(const fsdp_full_params *full,
                                           const fsdp_parameter *parameter);
/** Get the whole gradient, contiguous, to read and write. NULL if fsdp_full_params_get() returns
 * NULL, if there is no gradient, or if with_grads is not set. Borrowed. */
FSDP_API fsdp_tensor *fsdp_full_params_grad(const fsdp_full_params *full,
                                            const fsdp_parameter *parameter);
/** End the summoning. With writeback, each rank stores its own rows of the copies, including those
 * of gradients. Collective. Frees `full` even if it fails. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_summon_full_params_end(fsdp_full_params *full);
/** @} */

#ifdef __cplusplus
}
#endif
