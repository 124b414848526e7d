/* Computes the norm of the gradients and the factor by which they are clipped. The host does not
 * wait for these results.
 *
 * Note [Late norm]. When the host reads a number from a GPU, it waits until the GPU has run all
 * kernels that were started. The GPU is then idle until the host starts new kernels. So the host
 * does not read the factor by which an optimizer multiplies the gradients. One kernel writes this
 * factor to GPU memory, and the kernels of the optimizer's step read it from there. After the host
 * has started the optimizer's kernels, it reads the norm, which is ready long before they end:
 *
 *     fsdp_clip_begin(&parameters, 1.0, NULL, &clip);
 *     fsdp_clip_compute(clip, losses);
 *     fsdp_optimizer_step_clipped(optimizer, clip);
 *     fsdp_clip_end(clip, &norm, NULL);
 *     fsdp_clip_destroy(clip);
 *
 * A step must not be taken if the norm or a loss is not finite, but the host reads these values
 * only after it has started the step. So the kernel that computes the factor also checks these
 * values. If one is not finite, the step is refused: the kernels of the step change nothing. */
#pragma once
#include <fsdp/optim.h>

#include "src/kernels/kernels.h"

typedef struct fsdp_clip fsdp_clip;

/* Start the kernels that add up this rank's rows of the gradients. Does not wait. The arguments are
 * those of fsdp_clip_grad_norm(). `parameters` and the gradients must exist until
 * fsdp_clip_destroy(). */
FSDP_MUST_CHECK fsdp_status fsdp_clip_begin(const fsdp_parameter_list *parameters, double max_norm,
                                            const fsdp_clip_grad_options *options,
                                            fsdp_clip **clip);
/* Start the kernel that computes the factor by which the gradients are clipped. Waits only if there
 * are several ranks, which first exchange their sums. Collective if parameters are sharded. If
 * `losses` (float32) is not NULL, the step is refused unless all its elements are finite. If
 * options->error_if_nonfinite is set, the step is also refused if the norm is not finite. If no
 * parameter has a gradient, `losses` is ignored, because a step then changes no parameter. */
FSDP_MUST_CHECK fsdp_status fsdp_clip_compute(fsdp_clip *clip, const fsdp_tensor *losses);
/* Do a step of the optimizer. The gradients are multiplied by the clipping factor. If the step is
 * refused, change nothing. If the optimizer's steps are element-wise and the device has the trait
 * joins_kernels (device.h), the kernels read the factor in the device's memory. Otherwise, this
 * function waits for the factor. The optimizer's step counts are correct only after
 * fsdp_clip_end(), and the optimizer must exist until then. */
FSDP_MUST_CHECK fsdp_status fsdp_optimizer_step_clipped(fsdp_optimizer *optimizer, fsdp_clip *clip);
/* Wait until fsdp_clip_compute() has read `losses` and computed the factor, but not for kernels
 * that were started after it. */
FSDP_MUST_CHECK fsdp_status fsdp_clip_wait(fsdp_clip *clip);
/* Wait for the result of fsdp_clip_compute(), but not for kernels that were started after it. Set
 * *total_norm to the norm and *scale to the factor; total_norm and scale may be NULL. If
 * options->error_if_nonfinite is set, fail with FSDP_ERR_NUMERIC if the norm is not finite. */
FSDP_MUST_CHECK fsdp_status fsdp_clip_end(fsdp_clip *clip, double *total_norm, float *scale);
void fsdp_clip_destroy(fsdp_clip *clip); /* accepts NULL */
