/* The fake device, which only the testing build has: Note [Hooks for tests] in
 * src/base/alloc_testing.h. */
#pragma once
#include "src/tensor/device.h"

extern const fsdp_device_ops fsdp_device_fake;
