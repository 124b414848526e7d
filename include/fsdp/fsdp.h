/**
 * @file
 * fully_shard: shard parameters, gradients and optimizer state over ranks, as PyTorch's FSDP2 does.
 *
 * fsdp_fully_shard() makes a module a unit. The unit has the parameters of the module and of all
 * modules below it, except the parameters that belong to units inside the module. These parameters
 * are gathered together before the module's forward and again before its backward, and are freed
 * afterwards. Their gradients are reduced together. Call fsdp_fully_shard() bottom up: first for
 * the blocks, then for the root.
 *
 * Every fsdp_module_call() of the module gathers the unit, even if the call runs a function other
 * than the module's own forward. (In PyTorch, such a function must be registered with
 * register_fsdp_forward_method().)
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
 * torch.distributed.fsdp.MixedPrecisionPolicy. A zero-initialized policy uses float32 everywhere.
 *
 * Zero means float32 in this struct. In FSDP2, the default of a dtype is not float32 but None:
 * param_dtype=None means the parameter's own dtype, and reduce_dtype=None means param_dtype. So
 * defaults differ in two cases:
 * 1. The master weights are bfloat16. FSDP2's MixedPrecisionPolicy() then computes and reduces in
 *    bfloat16, but a zero-initialized fsdp_mp_policy computes and reduces in float32. To do what
 *    FSDP2 does, set param_dtype and reduce_dtype to bfloat16.
 * 2. The caller sets param_dtype to bfloat16 and does not set reduce_dtype. FSDP2 then reduces
 *    gradients in bfloat16, but this library reduces them in float32.
 *
 * An input is a floating-point tensor that is passed to a module call, and an output is one that
 * the call returns. If an input or output is cast, backward casts the gradient back to the dtype
 * from before the cast. Tables that operations always read in float32 (rotary tables, T5's position
 * bias) are not cast. float16 needs an fsdp_grad_scaler.
 */
typedef struct fsdp_mp_policy {
    fsdp_dtype param_dtype;  /**< dtype in which parameters are gathered and operations compute:
                                float32, bfloat16 or float16 */
    fsdp_dtype reduce_dtype; /**< gradients are rounded to this dtype and then summed in float32 */
    fsdp_dtype master_dtype; /**< dtype of the sharded parameters: float32 or bfloat16 */
    bool set_output_dtype;   /**< true: cast outputs to output_dtype */
    fsdp_dtype output_dtype; /**< ignored unless set_output_dtype is true */
    /** true: inputs are not cast. Default: inputs are cast to param_dtype. */
    bool no_cast_forward_inputs;
    bool cast_root_forward_inputs; /**< for FSDP1; true: the outermost unit casts its inputs even
                                      with no_cast_forward_inputs */
    /** For FSDP1: the dtype to which the values of buffers (rotary tables) are rounded. The rounded
     * values are stored as float32. All units use the buffer_dtype of the outermost unit. */
    fsdp_dtype buffer_dtype;
} fsdp_mp_policy;

/**
 * torch.distributed.fsdp.MixedPrecision (FSDP1). A zero-initialized struct is MixedPrecision(),
 * which sets no dtype and casts nothing.
 */
typedef struct fsdp_mixed_precision {
    /** set_param_dtype says whether the field param_dtype is used. If set_param_dtype is false,
     * param_dtype has its default, as with None in PyTorch. set_reduce_dtype and set_buffer_dtype
     * do the same for reduce_dtype and buffer_dtype. */
    bool set_param_dtype, set_reduce_dtype, set_buffer_dtype;
    fsdp_dtype param_dtype;  /**< default: the dtype of the master weights */
    fsdp_dtype reduce_dtype; /**< default: param_dtype, or float32 if param_dtype is not set */
    fsdp_dtype buffer_dtype; /**< see fsdp_mp_policy; default: float32 */
    bool keep_low_precision_grads;    /**< must be false: sharded gradients are always float32 */
    bool cast_forward_inputs;         /**< true: every unit casts its inputs to param_dtype */
    bool no_cast_root_forward_inputs; /**< true: cast_root_forward_inputs=False in PyTorch. Default:
                                         the outermost unit casts its inputs to param_dtype, even if
                                         cast_forward_inputs is false */
} fsdp_mixed_precision;

/** Get one of the FSDP tutorials' policies by name: "bfSixteen", "fpSixteen", "fp32_policy" or
 * "grad_bf16". Returns FSDP_ERR_INVALID for any other name. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_mixed_precision_preset(const char *name,
                                                                 fsdp_mixed_precision *mp);
/**
 * Set *policy to the fsdp_mp_policy that has the same effect as the FSDP1 policy `mp`, for master
 * weights of `master_dtype`.
 * @return FSDP_ERR_UNSUPPORTED if keep_low_precision_grads is set, or if fsdp_mp_policy does not
 *         allow a dtype; the message names the field
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_mp_policy_from_fsdp1(const fsdp_mixed_precision *mp,
                                                               fsdp_dtype master_dtype,
                                                               fsdp_mp_policy *policy);

typedef enum fsdp_offload_kind {
    FSDP_OFFLOAD_NONE,
    FSDP_OFFLOAD_CPU, /**< CPUOffloadPolicy, CPUOffload(offload_params=True): only prints a notice.
                         On the CPU device, parameters are in host memory anyway; on a GPU, they
                         and the optimizer state stay on the card */
    FSDP_OFFLOAD_DIR, /**< each rank offloads to a file in a directory */
} fsdp_offload_kind;

/**
 * Where master weights and optimizer state are while they are not used.
 *
 * With FSDP_OFFLOAD_DIR, each rank stores its tensors in a temporary file on the disk of `dir`. The
 * file has no name, so `dir` does not list it. Only the user who runs the program can read the
 * file. It disappears when the process ends. When a tensor is allocated, its disk blocks are
 * reserved, too; the allocation fails if the disk is full. Two or three units are in memory at the
 * same time: a thread reads the next unit and writes the previous one back. Every unit is gathered
 * into a copy, even in float32. Results have the same bits as without offload.
 */
typedef struct fsdp_offload_policy {
    fsdp_offload_kind kind;
    const char *dir; /**< FSDP_OFFLOAD_DIR: created if missing; must be the same for all units */
} fsdp_offload_policy;

typedef enum fsdp_reshard {
    FSDP_RESHARD_DEFAULT, /**< as in FSDP2: FSDP_RESHARD_FALSE for the outermost unit,
                             FSDP_RESHARD_TRUE for others */
    FSDP_RESHARD_TRUE,    /**< free the whole parameters after forward, and gather them again for
                             backward (ZeRO-3) */
    FSDP_RESHARD_FALSE,   /**< keep the whole parameters until after backward (ZeRO-2) */
    /** FSDP2's reshard_after_forward with an integer: between forward and backward, the parameters
     * are sharded over only reshard_ranks ranks, and backward gathers them from these ranks. In
     * this library, the ranks of a host share one copy of the whole parameters. If reshard_ranks is
     * at most the number of ranks of a host, the host keeps this copy until after backward, and
     * backward's gather sends nothing. If reshard_ranks is larger, several hosts keep one copy
     * together, and backward's gather is between these hosts. Their number is reshard_ranks divided
     * by the number of ranks of a host, rounded down. Between forward and backward, the program
     * must not read or write the parameters. Parameters with an all-gather extension are sharded
     * over all ranks again. */
    FSDP_RESHARD_TO_SMALLER,
} fsdp_reshard;

/** torch.distributed.fsdp.BackwardPrefetch: when to gather the unit that backward needs next. */
typedef enum fsdp_backward_prefetch {
    FSDP_BACKWARD_PRE,  /**< before the current unit computes; overlaps most, with two units in
                           memory */
    FSDP_BACKWARD_POST, /**< after the current unit has computed and is freed; needs less memory */
    FSDP_BACKWARD_NONE, /**< only when backward comes to that unit, so no unit is gathered in
                             advance */
} fsdp_backward_prefetch;

/** Which unit the forward pass gathers in advance each time it enters another unit. */
typedef enum fsdp_forward_prefetch {
    FSDP_FORWARD_IMPLICIT, /**< the unit that came after the current unit in the previous forward,
                              as long as the order of units has not changed */
    /** FSDP1's forward_prefetch=True. This is FSDP_FORWARD_IMPLICIT, but every iteration must enter
     * the same units in the same order as the first iteration. If a forward enters a unit out of
     * this order, the forward returns FSDP_ERR_STATE before it communicates. If an iteration enters
     * fewer units than the first one, its backward returns FSDP_ERR_STATE. */
    FSDP_FORWARD_STRICT,
    FSDP_FORWARD_NONE, /**< no unit */
} fsdp_forward_prefetch;

/**
 * A function that returns the dimension along which a parameter is sharded. The result must be the
 * same on every rank.
 * @param name the parameter's name within the unit's module
 * @return the dimension i of Shard(i). A negative i counts from the end: -1 is the last dimension
 */
typedef int fsdp_shard_placement_fn(const char *name, const fsdp_parameter *parameter, void *arg);

typedef struct fsdp_fully_shard_options {
    fsdp_mp_policy mp_policy;
    /** If set_internode_reduce_dtype is true, each host adds up the gradients of its ranks, rounds
     * the sum to internode_reduce_dtype (FSDP_DTYPE_F32 or FSDP_DTYPE_BF16, to nearest even), and
     * sends it to the other hosts. There, the sums of all hosts are added in float32. This sends
     * the smallest number of bytes over the network. But the last bits of the results may differ
     * from those of a run with the same number of ranks on one host. With float32, they cannot
     * differ if each host has 1, 2 or 4 ranks. If set_internode_reduce_dtype is false (the
     * default), the results have the same bits on one host and on several. Rows of embeddings that
     * are not tied to a head are always sent in float32. No effect if all ranks are on one host. */
    bool set_internode_reduce_dtype;
    fsdp_dtype internode_reduce_dtype;
    fsdp_reshard reshard_after_forward;
    /** For FSDP_RESHARD_TO_SMALLER. If the parameters are sharded over N ranks, this must be a
     * divisor of N. The value N has the effect of FSDP_RESHARD_TRUE, and the value 1 has the effect
     * of FSDP_RESHARD_FALSE. */
    int reshard_ranks;
    /** NO_SHARD: every rank keeps whole master weights, gradients and optimizer state. If all ranks
     * are on one host, they share one copy of each frozen parameter. So all ranks must write a
     * frozen parameter together, and the values of the first rank are stored. */
    bool no_shard;
    /** Borrowed; must outlive the module. A mesh of one dimension: parameters are sharded over all
     * ranks of the mesh. A mesh of two dimensions (replicate, shard): HSDP. Parameters are sharded
     * over the ranks along dimension 1. The ranks along dimension 0 hold the same shards, and
     * gradients are summed over them, too. NULL: parameters are sharded over all ranks of `group`.
     */
    const fsdp_device_mesh *mesh;
    /** Experimental. Chooses the dimension along which each parameter is sharded. NULL: all
     * parameters are sharded along dimension 0. A parameter that is sharded along another dimension
     * differs from parameters that are sharded along dimension 0 in three ways. It is gathered into
     * a copy, even in float32. fsdp_clip_grad_norm() adds up its gradient rank by rank, and not row
     * by row, so the last bits of the norm depend on the number of ranks. Adafactor needs whole
     * rows and refuses the parameter. */
    fsdp_shard_placement_fn *shard_placement_fn;
    void *shard_placement_arg;
    /** [n_ignored_params] parameters that no unit will have. Every rank holds these parameters
     * whole, in memory that the caller allocates (fsdp_module_to_empty()). Their gradients are not
     * reduced. The array is borrowed for the call. */
    fsdp_parameter *const *ignored_params;
    size_t n_ignored_params;
    /** Give the parameters of all ranks the values that they have on rank 0. On the other ranks,
     * the parameters need no memory before the call. */
    bool sync_module_states;
    /** All units use the backward_prefetch of the outermost unit. */
    fsdp_backward_prefetch backward_prefetch;
    /** All units use the forward_prefetch of the outermost unit. */
    fsdp_forward_prefetch forward_prefetch;
    /** false (the default): while a unit computes, at most two other units are gathered ahead of
     * time. true: any number of units may be gathered ahead of time. In this case, the library
     * allocates one more buffer for gathered copies, so that a rank can gather a unit while slower
     * ranks are still reading the copy of the previous unit. All units use the value of the
     * outermost unit. */
    bool no_limit_all_gathers;
    fsdp_offload_policy offload_policy; /**< default: nothing is offloaded */
} fsdp_fully_shard_options;

/**
 * Make `module` a unit over `group` and allocate memory for this rank's rows of its parameters. If
 * a parameter has memory already, its values are kept: the rows are copied from that memory.
 * Otherwise the rows are undefined.
 *
 * Collective. Call this before the first forward of the module or of a module around it. A call
 * that fails changes nothing.
 *
 * After the call, fsdp_parameter_local() returns a DTensor with this rank's rows of the master
 * weights. The tensor of fsdp_parameter_data() has data only while the unit is gathered. If a
 * module of another tree shares a parameter of the unit, that parameter may still exist when the
 * unit is destroyed. In this case, the parameter loses its memory, its values and its gradient, and
 * is like a new parameter.
 *
 * @param group   the ranks over which the module is sharded; borrowed, must outlive the module. A
 *                single rank passes NULL or a group of one rank. With options->mesh, `group` is
 *                NULL or has the ranks of the mesh
 * @param device  this rank's device; all units of a tree use the same device and group
 * @param options copied; NULL: all defaults
 * @return FSDP_ERR_INVALID if `module` is a unit already; if a parameter of `module` belongs to a
 *         unit that is not inside `module` (the message names the parameter and the unit); if the
 *         mesh and `group` have different numbers of ranks, or if the mesh has more than 2
 *         dimensions; or if reshard_ranks is not a divisor of the number of ranks.
 *         FSDP_ERR_UNSUPPORTED for a dtype that fsdp_mp_policy or internode_reduce_dtype does not
 *         allow. FSDP_ERR_STATE if a module around `module` is a unit, or if a unit inside `module`
 *         has run already
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_fully_shard(fsdp_module *module, fsdp_group *group,
                                                      fsdp_device *device,
                                                      const fsdp_fully_shard_options *options);
/**
 * Make several modules one unit, like fully_shard([norm, head]). The unit is gathered when the
 * first of its modules runs. It is freed when the last of them has run, or when the forward of the
 * outermost unit ends. In backward, the unit is gathered and freed in the same way. A parameter
 * that several of the modules share belongs to this unit.
 *
 * fsdp_module_is_unit() is true for each of the modules. A control function that is called for one
 * of them applies to the whole unit.
 *
 * @param modules [n] modules of one tree; none of them may be inside another one; the array is
 *                copied
 * @return the errors of fsdp_fully_shard(); FSDP_ERR_INVALID if two of the modules cannot be in one
 *         unit (the message names them)
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_fully_shard_modules(fsdp_module *const *modules, size_t n, fsdp_group *group,
                         fsdp_device *device, const fsdp_fully_shard_options *options);
FSDP_API bool fsdp_module_is_unit(const fsdp_module *module);

/** Properties of a unit at the time of fsdp_unit_get_info(). */
typedef struct fsdp_unit_info {
    /** The module of the unit, or the first one if it has several. */
    const fsdp_module *first_module;
    /** The ranks over which the parameters are sharded. Borrowed. NULL: one rank. */
    fsdp_group *group;
    /** With HSDP: the ranks that hold the same rows. Otherwise NULL. */
    fsdp_group *replicate_group;
    const fsdp_device_mesh *mesh; /**< the mesh of the unit's options; may be NULL */
    int mesh_ndim;                /**< number of dimensions of `mesh`; 1 without a mesh */
    /** [mesh_ndim] The placement on each dimension of the mesh. `placements` describes the
     * parameters that are sharded along dimension 0. A parameter is sharded along dimension 0
     * unless shard_placement_fn chooses another dimension. */
    fsdp_placement placements[FSDP_MAX_MESH_DIMS];
    fsdp_mp_policy mp_policy;
    bool reshard_after_forward; /**< false with FSDP_RESHARD_FALSE; also false with
                                   FSDP_RESHARD_DEFAULT if this is the outermost unit now */
    bool no_shard;
    fsdp_offload_kind offload;
    size_t n_parameters;
    int64_t frozen_numel; /**< number of elements of frozen parameters, which `numel` includes */
    /** `numel` is the number of elements in the whole parameters. local_numel is the number of
     * elements in this rank's rows of them. */
    int64_t numel, local_numel;
    int reshard_ranks;  /**< fsdp_fully_shard_options.reshard_ranks if the unit has
                           FSDP_RESHARD_TO_SMALLER, otherwise 0 */
    int kept_ranks;     /**< with FSDP_RESHARD_TO_SMALLER: number of ranks that together keep one
                             copy of the parameters between forward and backward. They are all ranks
                             of one host or of several hosts. Without FSDP_RESHARD_TO_SMALLER: 0 */
    bool is_unsharded;  /**< the unit's parameters have data now */
    bool is_prefetched; /**< the unit's gather has begun but is not complete */
    bool is_held;       /**< fsdp_unit_unshard() was called, and fsdp_unit_reshard() was not called
                           since then */
    fsdp_backward_prefetch backward_prefetch; /**< the outermost unit's option */
    fsdp_forward_prefetch forward_prefetch;   /**< the outermost unit's option */
    bool limit_all_gathers;                   /**< the outermost unit's option */
    /** How many modules were passed to the last fsdp_set_modules_to_forward_prefetch() and the last
     * fsdp_set_modules_to_backward_prefetch() for this unit. */
    size_t n_forward_prefetch, n_backward_prefetch;
    bool requires_gradient_sync; /**< value set by fsdp_set_requires_gradient_sync(); false within
                                    no_sync */
    bool requires_all_reduce;
    bool reshard_after_backward, unshard_in_backward, is_last_backward;
    double gradient_divide_factor; /**< set by fsdp_set_gradient_divide_factor() */
} fsdp_unit_info;

/** Set *info to the properties of the unit of `module`. Return FSDP_ERR_INVALID if `module` is not
 * a unit. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_unit_get_info(const fsdp_module *module,
                                                        fsdp_unit_info *info);

/** How fsdp_module_print() prints a unit. The comment after each constant shows how a unit whose
 * module is a T5Block is printed. */
typedef enum fsdp_print_form {
    FSDP_PRINT_FSDP2, /**< (0): FSDPT5Block( */
    FSDP_PRINT_FSDP1, /**< (0): FullyShardedDataParallel( (_fsdp_wrapped_module): T5Block( */
} fsdp_print_form;

/**
 * Print the tree below `module` as torch prints modules. Equal neighbors in a ModuleList are
 * printed once: "(0-5): 6 x T5Block(". fsdp_module_set_extra_repr() sets the text in a layer's
 * parentheses.
 *
 * The line of a unit ends with the unit's dtypes and the number of its elements on this rank: "#
 * bfloat16 of float32, reduced in float32, returns float32, 64 of 154 elements". The dtypes are, in
 * this order, param_dtype, master_dtype, reduce_dtype and output_dtype. master_dtype and
 * reduce_dtype are printed only if they differ from param_dtype, and output_dtype only if it is
 * set. The number of frozen elements follows if there are any.
 * @return FSDP_ERR_IO if writing fails
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_print(const fsdp_module *module, FILE *out,
                                                       fsdp_print_form form);

/** @name Wrap policies: torch.distributed.fsdp.wrap @{ */
typedef enum fsdp_wrap_kind {
    FSDP_WRAP_TRANSFORMER, /**< modules of certain classes: transformer_auto_wrap_policy */
    FSDP_WRAP_SIZE,        /**< modules with many parameters: size_based_auto_wrap_policy */
    FSDP_WRAP_NONE,        /**< no module but the root */
    FSDP_WRAP_CUSTOM,      /**< modules that a function chooses: CustomPolicy */
} fsdp_wrap_kind;

/**
 * A function that returns true if `module` shall become a unit. fsdp_auto_wrap() calls this
 * function for every module below the root, children before parents. The result must be the same on
 * every rank.
 * @param path    dotted path of the module below the root
 * @param options in: the root's options; out: the options of this unit
 */
typedef bool fsdp_wrap_fn(const char *path, const fsdp_module *module, void *arg,
                          fsdp_fully_shard_options *options);

/**
 * A function that sets the options of one unit, as in fully_shard(layer, mp_policy=...).
 * fsdp_auto_wrap() calls this function for the root (with path "") and for every module that the
 * policy has chosen, whatever the kind of the policy. The function must set the same options on
 * every rank.
 * @param options in: the root's options; out: the options of this unit
 */
typedef void fsdp_unit_options_fn(const char *path, const fsdp_module *module, void *arg,
                                  fsdp_fully_shard_options *options);

/** How fsdp_auto_wrap() chooses the modules that become units. The comment of each field says for
 * which `kind` the field is used. */
typedef struct fsdp_wrap_policy {
    fsdp_wrap_kind kind;
    /** For FSDP_WRAP_TRANSFORMER: names of the classes whose modules become units, NULL-terminated.
     * A chosen module may be inside another one. fsdp_model_info.block_classes has the names for a
     * model. */
    const char *const *transformer_layer_cls;
    /** For FSDP_WRAP_SIZE: a module becomes a unit if its parameters, without those of units inside
     * it, have at least this number of elements. Ignored parameters do not count. 0: 100000000. */
    int64_t min_num_params;
    /** For FSDP_WRAP_SIZE: names of classes whose modules never become units, NULL-terminated.
     * NULL: ModuleList and ModuleDict. */
    const char *const *exclude_wrap_modules;
    /** For FSDP_WRAP_SIZE: names of classes, NULL-terminated. A module of one of these classes does
     * not become a unit, and no module inside it becomes one. NULL: MultiheadAttention. */
    const char *const *force_leaf_modules;
    fsdp_wrap_fn *custom; /**< for FSDP_WRAP_CUSTOM */
    void *custom_arg;
    /** For all kinds: the number of chosen modules that form one unit (fsdp_fully_shard_modules()).
     * Chosen modules that have the same parent and the same class are joined in their order. The
     * last unit may have fewer modules. A unit has the options of its first module. It is an error
     * if another module of the unit has other options. 0 or 1: each chosen module becomes its own
     * unit. */
    int modules_per_unit;
    /** For all kinds; experimental: [n_joint_modules] modules that together become one unit
     * (fsdp_fully_shard_modules()), even if the policy does not choose them. They are called joint
     * modules. The unit has the options of the first joint module. The policy chooses among the
     * modules inside the joint modules as usual. */
    fsdp_module *const *joint_modules;
    size_t n_joint_modules;
    /** For all kinds. NULL: all units have the root's options. */
    fsdp_unit_options_fn *unit_options;
    void *unit_options_arg;
} fsdp_wrap_policy;

/**
 * FullyShardedDataParallel(root, auto_wrap_policy=...): call fsdp_fully_shard() for the modules
 * that the policy chooses, children first, and then for `root`. Collective.
 *
 * Only a module that has a forward of its own can be a unit. A Linear, a LayerNorm or an Embedding
 * inside a block has none: the block reads its parameters. A model's head and token embedding have
 * a forward, except T5's embedding, which both the encoder and the decoder read. FSDP_WRAP_SIZE
 * never chooses a module without a forward. If a policy of another kind chooses one, that is an
 * error.
 *
 * If several modules share a parameter, as with T5's `shared`, the parameter belongs to the
 * innermost unit around all of these modules. FSDP_WRAP_SIZE counts the parameter there.
 *
 * @param policy  NULL: only the root becomes a unit
 * @param options options of every unit; NULL: all defaults. output_dtype applies only to the root,
 *                because the other units pass their outputs to each other
 * @return FSDP_ERR_INVALID if transformer_layer_cls names a class that no module has, or a class
 *         whose modules cannot be units; the message lists the possible classes. FSDP_ERR_INVALID
 *         if a module is a unit already. After these errors nothing has changed. Also the errors of
 *         fsdp_fully_shard(). If fsdp_fully_shard() fails for one module, other modules may be
 *         units already, and the tree can only be destroyed
 *
 * Source: torch/distributed/fsdp/wrap.py.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_auto_wrap(fsdp_module *root,
                                                    const fsdp_wrap_policy *policy,
                                                    fsdp_group *group, fsdp_device *device,
                                                    const fsdp_fully_shard_options *options);
/** @} */

/** @name FullyShardedDataParallel (FSDP1) @{ */
/** torch.distributed.fsdp.ShardingStrategy. The hybrid strategies are for a mesh (replicate,
 * shard). Without a mesh there is only one replica: the parameters are sharded over all ranks of
 * the group. */
typedef enum fsdp_sharding_strategy {
    FSDP_SHARDING_FULL_SHARD,
    FSDP_SHARDING_SHARD_GRAD_OP, /**< parameters stay gathered between forward and backward */
    FSDP_SHARDING_NO_SHARD,
    FSDP_SHARDING_HYBRID_SHARD,      /**< FULL_SHARD within a replica */
    FSDP_SHARDING_HYBRID_SHARD_ZERO2 /**< SHARD_GRAD_OP within a replica */
} fsdp_sharding_strategy;

/** Names of the enumerators for command-line flags (fsdp_option.choices), in the order of the
 * enumerators, NULL-terminated. @{ */
FSDP_API extern const char *const fsdp_sharding_strategy_choices[];
FSDP_API extern const char *const fsdp_backward_prefetch_choices[];
/** @} */

/** The sharding that environment variables describe; see fsdp_options_from_environment(). */
typedef struct fsdp_environment_options {
    fsdp_sharding_strategy sharding_strategy; /**< for a hybrid strategy, the caller must create a
                                                   mesh and set fully_shard.mesh, which
                                                   fsdp_options_from_environment() leaves NULL */
    fsdp_fully_shard_options fully_shard;     /**< for fsdp_fully_shard() and fsdp_auto_wrap() */
    bool activation_checkpointing;
} fsdp_environment_options;

/**
 * Read the variables that `fsdp launch --config_file` and `accelerate launch` set for their
 * workers: ACCELERATE_MIXED_PRECISION, FSDP_VERSION, FSDP_SHARDING_STRATEGY,
 * FSDP_RESHARD_AFTER_FORWARD, FSDP_OFFLOAD_PARAMS, FSDP_BACKWARD_PREFETCH, FSDP_FORWARD_PREFETCH
 * and FSDP_ACTIVATION_CHECKPOINTING. A field whose variables are not set has its default. Call this
 * function first, and then set the fields that the program's own code or flags decide. These then
 * take precedence over the launcher's configuration file:
 *
 *     fsdp_environment_options environment;
 *     FSDP_TRY(fsdp_options_from_environment(&environment));
 *     environment.fully_shard.mp_policy.reduce_dtype = FSDP_DTYPE_F32;
 *     FSDP_TRY(fsdp_fully_shard(model, group, device, &environment.fully_shard));
 *
 * If the precision is fp16, losses need a gradient scaler.
 *
 * @param environment out: set if FSDP_OK is returned
 * @return FSDP_ERR_INVALID if the value of a variable is not allowed; the message contains the
 *         variable and the allowed values
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_options_from_environment(fsdp_environment_options *environment);

/**
 * A function that initializes the parameters of `module` itself, not those of modules below it,
 * like reset_parameters() in PyTorch. It may call fsdp_module_init(). Or it may write the tensors
 * of fsdp_parameter_local() between fsdp_tensor_begin_write() and fsdp_tensor_end_write().
 *
 * Every rank calls this function for each module that itself has a parameter without values.
 * Parameters of modules below it do not matter. A parameter has values if they were loaded, or if
 * they came from rank 0 (sync_module_states). Ignored parameters do not count: if only ignored
 * parameters of a module have no values, the function is not called for it. Ignored parameters may
 * have no memory, so check before you write them.
 */
typedef fsdp_status fsdp_param_init_fn(const char *path, fsdp_module *module, void *arg);

/** The arguments of FullyShardedDataParallel(). A field that is 0 or NULL has its default. */
typedef struct fsdp_fully_sharded_data_parallel_options {
    fsdp_sharding_strategy sharding_strategy;
    bool cpu_offload; /**< CPUOffload(offload_params=True). true: the policy is FSDP_OFFLOAD_DIR if
                         offload_dir is set, else FSDP_OFFLOAD_CPU */
    /** fsdp_offload_policy.dir. If cpu_offload is false, offload_dir must be NULL. */
    const char *offload_dir;
    const fsdp_wrap_policy *auto_wrap_policy; /**< default: only the module itself becomes a unit.
                                                   PyTorch's ModuleWrapPolicy corresponds to
                                                   FSDP_WRAP_TRANSFORMER */
    fsdp_backward_prefetch backward_prefetch;
    const fsdp_mixed_precision *mixed_precision; /**< default: nothing is cast */
    /** [n_ignored_modules] The parameters of these modules and of all modules below them are
     * ignored (fsdp_fully_shard_options.ignored_params). */
    fsdp_module *const *ignored_modules;
    size_t n_ignored_modules;
    /** [n_ignored_states] These parameters are ignored, too. */
    fsdp_parameter *const *ignored_states;
    size_t n_ignored_states;
    fsdp_param_init_fn *param_init_fn; /**< default: the caller loads or initializes values later */
    void *param_init_arg;
    bool sync_module_states;   /**< true: all ranks get the values that rank 0 has */
    bool forward_prefetch;     /**< true: FSDP_FORWARD_STRICT; default: FSDP_FORWARD_IMPLICIT */
    bool no_limit_all_gathers; /**< true: limit_all_gathers=False; default:
                                    limit_all_gathers=True */
    /** true: a unit may have both frozen and trainable parameters. Default: this is an error, as in
     * PyTorch. Parameters keep their names and shapes in both cases. */
    bool use_orig_params;
    const fsdp_device_mesh *device_mesh; /**< see fsdp_fully_shard_options.mesh */
} fsdp_fully_sharded_data_parallel_options;

/**
 * FullyShardedDataParallel(module, ...): call fsdp_auto_wrap() with equivalent options. The modules
 * that auto_wrap_policy chooses and `module` itself become units. Collective.
 *
 * @param group   process_group; borrowed
 * @param device  device_id: where the parameters are allocated
 * @param options NULL: all defaults; copied
 * @return the errors of fsdp_auto_wrap(); FSDP_ERR_INVALID if the mesh does not fit the strategy,
 *         in which case nothing has changed; FSDP_ERR_INVALID if use_orig_params is false and a
 *         unit has both frozen and trainable parameters (the message names two of them); the
 *         failures of param_init_fn. After a failure of param_init_fn, or after the error about
 *         frozen and trainable parameters, the tree can only be destroyed
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_fully_sharded_data_parallel(fsdp_module *module, fsdp_group *group, fsdp_device *device,
                                 const fsdp_fully_sharded_data_parallel_options *options);
/** @} */

/** @name All-gather extensions @{ */
/**
 * Experimental. Functions that pack a parameter before its all-gather and unpack it afterwards,
 * like fsdp_pre_all_gather() and fsdp_post_all_gather() of a tensor subclass in FSDP2. The ranks
 * communicate only the packed form (float8, NF4). On all ranks, the functions are called in the
 * same order.
 */
typedef struct fsdp_all_gather_extension {
    /** Return the number of bytes of `rows` rows in packed form. The result must be the same on
     * every rank. */
    size_t (*packed_bytes)(void *self, const fsdp_parameter *parameter, int64_t rows);
    /**
     * Pack this rank's rows.
     * @param local  this rank's rows of the parameter, as they are stored; may have no rows. On a
     *               device with memory of its own, fsdp_tensor_copy_to_host() gets their elements
     * @param group  a group over which the function may communicate, e.g. to agree on a scale; NULL
     *               if there is only one rank
     * @param packed out: [bytes] in host memory, where `bytes` is the result of packed_bytes();
     *               aligned to at least 16 bytes
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
 * Set the extension of a parameter. Call this before fsdp_fully_shard() of its unit. While the unit
 * is gathered, each rank has its own copy of the whole unpacked parameter.
 * @param extension copied; NULL: none
 * @return FSDP_ERR_STATE if the parameter belongs to a unit already
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_parameter_set_all_gather_extension(
    fsdp_parameter *parameter, const fsdp_all_gather_extension *extension);
/** @} */

/**
 * @name Control functions
 * A control function changes how a unit runs. Without `recurse`, `module` must be a unit, and the
 * function applies to this unit. With `recurse`, the function applies to all units at and below
 * `module`, and `module` itself need not be a unit. If there is no such unit, the function returns
 * FSDP_ERR_INVALID and changes nothing. All ranks must make the same calls. fsdp_unit_unshard() and
 * fsdp_unit_reshard() take effect at once, the other functions at the next forward or backward.
 * Sources: FSDPModule of torch/distributed/fsdp/_fully_shard, and FullyShardedDataParallel. @{
 */

/**
 * Gather the unit's parameters now and keep them until fsdp_unit_reshard(). Call
 * fsdp_unit_reshard() before the parameters are written (by an optimizer step, an initialization or
 * a load). Collective.
 * @return FSDP_ERR_INVALID if `module` is not a unit; FSDP_ERR_STATE while its parameters are being
 *         written or are summoned (fsdp_summon_full_params_begin())
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_unit_unshard(fsdp_module *module);
/** Free the whole parameters of the unit now. Return FSDP_ERR_INVALID if `module` is not a unit. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_unit_reshard(fsdp_module *module);

typedef struct fsdp_unshard_handle fsdp_unshard_handle;
/**
 * unshard(async_op=True): start gathering the unit's parameters. The unit's next forward or
 * backward waits until the gather is complete, and later frees the parameters as usual. If an
 * optimizer step, an initialization or a load writes the unit's parameters before the unit runs,
 * call fsdp_unit_reshard() before that write. Collective, but does not wait for the peers.
 * @param handle out: must be passed to fsdp_unshard_handle_wait() before the module is destroyed.
 *               `handle` may be NULL
 * @return the errors of fsdp_unit_unshard()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_unit_unshard_async(fsdp_module *module,
                                                             fsdp_unshard_handle **handle);
/** Wait until the gather is complete, and free the handle. Does not wait if the unit has been
 * resharded since fsdp_unit_unshard_async(). Accepts NULL. Collective. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_unshard_handle_wait(fsdp_unshard_handle *handle);

/**
 * When forward enters `module`, gather the units of `modules` ahead of time, in the order of the
 * array. The unit that forward_prefetch would choose is gathered ahead only if it is in the array.
 * The array may have any length. But unless no_limit_all_gathers is set, at most two units are
 * gathered ahead at any time, and the other units of the array wait. If a unit was gathered ahead
 * and did not run, it is freed at the end of the forward.
 * @param modules [n] units of the same tree; copied. n == 0: remove the array of an earlier call,
 *                so that forward_prefetch chooses the unit again
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_set_modules_to_forward_prefetch(fsdp_module *module, fsdp_module *const *modules, size_t n);
/** Like fsdp_set_modules_to_forward_prefetch(), but for backward and backward_prefetch. */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_set_modules_to_backward_prefetch(fsdp_module *module, fsdp_module *const *modules, size_t n);

/**
 * Choose whether backward communicates gradients. With false, backward communicates nothing. Each
 * rank then adds up the whole gradients of its own micro-steps, one micro-step after another, in
 * the unit's float32 gradient buffer. This buffer stays allocated on every rank. The next backward
 * with true reduces these sums over the ranks and divides them. This function also calls
 * fsdp_set_requires_all_reduce() with the same value.
 *
 * The buffer has a float32 for each element of the unit's parameters, with one exception. In the
 * first micro-step, it has memory only for those rows of an embedding's gradient that were looked
 * up. In the second micro-step, it gets memory for all rows.
 *
 * Results are the same in every run, but their last bits differ from those of a step whose
 * backwards all run with true. Such backwards add the gradients of all ranks and micro-steps in the
 * order of one binary tree.
 *
 * The sums are dropped in three cases: a forward or backward fails; fsdp_tape_reset() cancels a
 * forward; or a forward has micro_step 0 and n_micro_steps above 1. A forward without a tape never
 * drops them. After a failure that dropped gradients, the step must start again. Until then, a
 * forward with a micro_step above 0 returns FSDP_ERR_STATE. The backward of a loss returns
 * FSDP_ERR_STATE if gradients that its forward had added were dropped.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_requires_gradient_sync(fsdp_module *module,
                                                                     bool requires_gradient_sync,
                                                                     bool recurse);
/**
 * With HSDP, choose whether backward also sums gradients over the replicas. With false, backward
 * sums gradients only within each replica, and each rank adds its rows of these sums to its rows of
 * the earlier micro-steps. The next backward with true then sums the rows over the replicas. The
 * sums are dropped in the cases that are listed at fsdp_set_requires_gradient_sync().
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_requires_all_reduce(fsdp_module *module,
                                                                  bool requires_all_reduce,
                                                                  bool recurse);
/** Begin FSDP1's no_sync(): until fsdp_no_sync_end(), backward communicates no gradients of the
 * units at and below `root`, as with fsdp_set_requires_gradient_sync(false). Return
 * FSDP_ERR_INVALID if `root` is inside a unit, and FSDP_ERR_STATE if no_sync has begun already. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_no_sync_begin(fsdp_module *root);
/** End no_sync(). From now on, the last fsdp_set_requires_gradient_sync() of each unit applies
 * again. Return FSDP_ERR_STATE if no_sync has not begun. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_no_sync_end(fsdp_module *root);

/** Replace fsdp_fully_shard_options.reshard_after_forward of a unit. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_reshard_after_forward(fsdp_module *module,
                                                                    bool reshard_after_forward,
                                                                    bool recurse);
/** Choose whether backward frees the whole parameters. With false, parameters stay gathered after
 * backward, so that the next forward need not gather them. Use false for all micro-steps but the
 * last one. Before the parameters are written (by an optimizer step, an initialization or a load),
 * call fsdp_unit_reshard() or run a backward with true. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_reshard_after_backward(fsdp_module *module,
                                                                     bool reshard_after_backward,
                                                                     bool recurse);
/** Say whether the next backward is the last one before the optimizer step; true is the default.
 * Backward reduces the gradients of a unit only after it has also run the next unit. So when
 * backward has run its last unit, the gradients of that unit are not reduced yet. With true, the
 * same backward reduces these gradients before it ends. With false, the next backward reduces them.
 * Applies to all units of the tree. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_is_last_backward(fsdp_module *module,
                                                               bool is_last_backward);
/** If false, backward does not gather the unit's parameters. Use false for a unit whose
 * operations do not read their parameters in backward, such as an embedding. If an operation does
 * read a parameter in backward, the operation fails. It fails on the meta device, too, where no
 * parameter has data. This control has no effect while `module` or a module below it has activation
 * checkpointing. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_unshard_in_backward(fsdp_module *module,
                                                                  bool unshard_in_backward);

/**
 * Set the number by which gradients are divided. Gradients are summed over ranks and micro-steps,
 * and are divided once, at the last micro-step. Applies to all units at and below `root`.
 * @param factor the divisor. 0 (the default) means world_size. With 0, the result is the gradient
 *               of the mean of the ranks' losses, as in FSDP2. To get the gradient of the mean over
 *               all label tokens of the step, pass the number of these tokens. Returns
 *               FSDP_ERR_INVALID for a negative or infinite factor
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_gradient_divide_factor(fsdp_module *root,
                                                                     double factor);

/** A function that may read and change `rows`, this rank's rows of a gradient. If the function
 * fails, the backward fails. */
typedef fsdp_status fsdp_all_reduce_hook(fsdp_parameter *parameter, fsdp_tensor *rows, void *arg);
/** Set a function that backward calls for each gradient of the unit. At that time, the gradient has
 * been reduced and divided, but not yet added to the tensor of fsdp_parameter_grad(). NULL:
 * none. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_all_reduce_hook(fsdp_module *module,
                                                              fsdp_all_reduce_hook *hook,
                                                              void *arg);
/** @} */

/** @name summon_full_params (FSDP1): whole parameters between steps, to read or change @{ */
/** The arguments of FSDP.summon_full_params(). A field that is false has its default. */
typedef struct fsdp_summon_full_params_options {
    bool no_recurse;   /**< recurse=False: summon only the outermost units at and below the module,
                          not the units inside them */
    bool no_writeback; /**< writeback=False: changes to the copies are lost at the end */
    bool rank0_only;   /**< only the first rank of each unit's group gets the parameters, and the
                          other ranks get NULL; requires no_writeback */
    bool offload_to_cpu; /**< no effect: the copies are on the device of the unit */
    bool with_grads;     /**< true: gather gradients, too */
} fsdp_summon_full_params_options;

/** Whole parameters that are summoned, that is, gathered for the user. */
typedef struct fsdp_full_params fsdp_full_params;

/**
 * Summon the parameters of all units at and below `module`: give each rank its own copies of the
 * whole parameters, in the dtype of the master weights. Collective. Until
 * fsdp_summon_full_params_end(), running these units or writing their parameters (optimizer, init,
 * load) returns FSDP_ERR_STATE.
 *
 * @param options NULL: all defaults; copied
 * @param full    out: owned by the caller; must be passed to fsdp_summon_full_params_end() before
 *                the module is destroyed
 * @return FSDP_ERR_INVALID if `module` has no unit; FSDP_ERR_STATE within a forward or backward, on
 *         meta, or if a unit is being written or is summoned already; FSDP_ERR_UNSUPPORTED for
 *         rank0_only without no_writeback, or if a parameter is stored in NF4. In each case nothing
 *         has changed
 *
 * Source: FullyShardedDataParallel.summon_full_params().
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_summon_full_params_begin(
    fsdp_module *module, const fsdp_summon_full_params_options *options, fsdp_full_params **full);
/** Get this rank's copy of the whole parameter, contiguous, to read and write. Return NULL if this
 * rank has no copy or the parameter's unit is not summoned. Borrowed. */
FSDP_API fsdp_tensor *fsdp_full_params_get(const fsdp_full_params *full,
                                           const fsdp_parameter *parameter);
/** Get this rank's copy of the whole gradient, contiguous, to read and write. Return NULL if
 * fsdp_full_params_get() returns NULL, if the parameter has no gradient, or if with_grads is false.
 * Borrowed. */
FSDP_API fsdp_tensor *fsdp_full_params_grad(const fsdp_full_params *full,
                                            const fsdp_parameter *parameter);
/** End the summoning and free the copies. Unless no_writeback is set, each rank first writes its
 * rows of the copied parameters back to the master weights. If with_grads is set, it also writes
 * its rows of the copied gradients back to the gradients. Collective. Frees `full` even after a
 * failure. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_summon_full_params_end(fsdp_full_params *full);
/** @} */

#ifdef __cplusplus
}
#endif
