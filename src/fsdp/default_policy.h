/* The wrap policy that is used if the user gives none. These modules of a language model become
 * units: each block, each embedding or head whose weight no other module uses, and the root. */
#pragma once
#include <fsdp/fsdp.h>

/* Return the policy for a model. `block_classes` points to a variable of the caller. The value of
 * this variable is a NULL-terminated list of the class names of the model's blocks, as in
 * fsdp_model_info.block_classes. The policy stores the pointer `block_classes`, so the variable
 * must exist as long as the policy is used. */
fsdp_wrap_policy fsdp_default_wrap_policy(const char *const **block_classes);
/* Some controls of units, such as unshard_in_backward, have no field in fsdp_fully_shard_options.
 * So the policy cannot set these controls when it makes the units. Set them now. Call this after
 * the units are made. */
FSDP_MUST_CHECK fsdp_status fsdp_default_units_finish(fsdp_module *root);
/* Shard `module` by the default policy: fsdp_auto_wrap(), then fsdp_default_units_finish(). */
FSDP_MUST_CHECK fsdp_status fsdp_model_shard(fsdp_module *module, const char *const *block_classes,
                                             fsdp_group *group, fsdp_device *device,
                                             const fsdp_fully_shard_options *options);
