/* The forward and the backward of one batch, without waiting for the loss. */
#pragma once
#include <fsdp/train.h>

/* Do what fsdp_forward_backward() does, but do not read the loss: *loss is a tensor with one
 * element, which the caller releases, on `device`. It includes the scaler's scale. If o->training,
 * o->tape must not be NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_start_forward_backward(fsdp_module *model, fsdp_device *device,
                                                        const fsdp_batch *batch,
                                                        const fsdp_forward_backward_options *o,
                                                        fsdp_tensor **loss);
