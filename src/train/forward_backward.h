/* The forward and the backward of one batch, without waiting for the loss. */
#pragma once
#include <fsdp/train.h>

/* Like fsdp_forward_backward(), but do not wait for the loss. Set *loss to the loss, multiplied by
 * the scaler's scale. It is a tensor with one element on `device`, which the caller releases. If
 * o->training, o->tape must not be NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_start_forward_backward(fsdp_module *model, fsdp_device *device,
                                                        const fsdp_batch *batch,
                                                        const fsdp_forward_backward_options *o,
                                                        fsdp_tensor **loss);
