/* Which modules of a language model become units if the user gives no wrap policy: its blocks, and
 * each module that has a whole vocabulary of its own (embedding, head), then the root. */
#pragma once
#include <fsdp/fsdp.h>

/* The policy for the classes of a model's blocks (fsdp_model_info). It borrows the pointer, not
 * only what it points to. */
fsdp_wrap_policy fsdp_default_wrap_policy(const char *const **block_classes);
/* Set the controls of this policy's units that are not options. Call it after they were made. */
FSDP_MUST_CHECK fsdp_status fsdp_default_units_finish(fsdp_module *root);
/* Shard `module` by the default policy: fsdp_auto_wrap(), then fsdp_default_units_finish(). */
FSDP_MUST_CHECK fsdp_status fsdp_model_shard(fsdp_module *module, const char *const *block_classes,
                                             fsdp_group *group, fsdp_device *device,
                                             const fsdp_fully_shard_options *options);
