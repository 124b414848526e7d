/**
 * @file
 * fully_shard: parameters, gradients and optimizer state over ranks, as PyTorch's FSDP2.
 *
 * Each module given to fsdp_fully_shard() is a unit: its parameters (those that no unit inside it
 * has) are gathered together before its forward and backward, and freed after them; its gradients
 * are reduced together. Call it bottom up: the blocks, then the root.
 */
#pragma once
#include <fsdp/base.h>
#include <fsdp/comm.h>
#include <fsdp/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/** torch.distributed.fsdp.MixedPrecisionPolicy. Zero-initialised: everything float32. */
typedef struct fsdp_mp_policy {
    fsdp_dtype param_dtype;  /**< of compute and all-gather: float32 or bfloat16 */
    fsdp_dtype reduce_dtype; /**< gradients are rounded to it once, then summed in float32 */
    fsdp_dtype master_dtype; /**< of the sharded parameters: float32 or bfloat16 */
} fsdp_mp_policy;

typedef enum fsdp_reshard {
    FSDP_RESHARD_DEFAULT, /**< true, but false for the root, as FSDP2 */
    FSDP_RESHARD_TRUE,    /**< free after forward, gather again for backward (ZeRO-3) */
    FSDP_RESHARD_FALSE,   /**< keep until after backward (ZeRO-2) */
} fsdp_reshard;

typedef struct fsdp_fully_shard_options {
    fsdp_mp_policy mp_policy;
    fsdp_reshard reshard_after_forward;
    bool no_shard; /**< NO_SHARD: every rank keeps whole master, gradients and optimizer state */
} fsdp_fully_shard_options;

/**
 * Make `module` a unit over `group`. Its parameters get memory now (contents undefined unless they
 * had memory: then each rank takes its rows of it). Collective. Before the first forward of the
 * module or anything around it; what fails changes nothing.
 *
 * Afterwards fsdp_parameter_local() is a DTensor of this rank's rows of the master, and
 * fsdp_parameter_data() has data only between unshard and reshard.
 *
 * @param group   borrowed: it outlives the module. NULL or of one rank: nothing is communicated
 * @param device  the rank's; all units of one tree are over the same device and group
 * @param options NULL: all defaults; copied
 * @return FSDP_ERR_INVALID if it is a unit already; FSDP_ERR_UNSUPPORTED for dtypes; FSDP_ERR_STATE
 *         if a module around it is a unit, or one inside has run already.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_fully_shard(fsdp_module *module, fsdp_group *group,
                                                      fsdp_device *device,
                                                      const fsdp_fully_shard_options *options);
FSDP_API bool fsdp_module_is_unit(const fsdp_module *module);

/**
 * Gather the unit's parameters now, and keep them until fsdp_unit_reshard(), which must come before
 * the next write to them (optimizer, init, load). Collective.
 * @return FSDP_ERR_INVALID if module is no unit.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_unit_unshard(fsdp_module *module);
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_unit_reshard(fsdp_module *module);

/**
 * From now on gradients are sums over ranks and micro-steps, divided by `factor` once, at the last
 * micro-step. 0: the default, world_size (the mean of the ranks' losses, as FSDP2). A token mean
 * sets the number of label tokens of the whole step. For every unit of `root`.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_set_gradient_divide_factor(fsdp_module *root,
                                                                     double factor);

#ifdef __cplusplus
}
#endif
