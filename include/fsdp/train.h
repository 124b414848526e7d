/**
 * @file
 * What a training script needs around its loop: its arguments, a rank's device, forward and
 * backward of a batch. Includes <fsdp/pretrained.h>, models by name, and <fsdp/progress.h>,
 * progress bars.
 */
#pragma once
#include <stdio.h>

#include <fsdp/base.h>
#include <fsdp/comm.h>
#include <fsdp/models.h>
#include <fsdp/nn.h>
#include <fsdp/optim.h>
#include <fsdp/options.h>
#include <fsdp/pretrained.h>
#include <fsdp/progress.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The device of this rank, the CPU with its share of the cores: torch.cuda.set_device(local_rank).
 * Collective.
 * @param group  NULL: a rank alone
 * @param device out: owned by the caller, ended by fsdp_device_destroy()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_default_device(fsdp_group *group, fsdp_device **device);

/**
 * argparse's parse_args() for main(): fsdp_options_parse(), and the text that --help or
 * --print-config asks for, or else the notes of the flags that were given, go to stdout, from rank
 * 0 alone of what `fsdp launch` started.
 * @param run out: false: such a text was asked for, and the program is to end with success
 * @return as fsdp_options_parse(); FSDP_ERR_IO if stdout takes no more
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_parse_args(const fsdp_options_spec *spec, int argc,
                                                     char **argv, void *target,
                                                     fsdp_options **options, bool *run);

/** Zero means default. */
typedef struct fsdp_forward_backward_options {
    bool training;   /**< backward follows, and dropout is on: model.train(). Default: model.eval()
                          under torch.no_grad() */
    fsdp_tape *tape; /**< training: what forward did, for backward; empty before and after. NULL:
                          one of this call's own */
    double factor;   /**< of the sum over labels; 0: 1 / label_tokens, the mean over this batch's */
    fsdp_grad_scaler *scaler;      /**< training: gradients are those of the loss times its scale */
    int micro_step, n_micro_steps; /**< of gradient accumulation: see fsdp_scope_options */
} fsdp_forward_backward_options;

/**
 * loss = model(**batch).loss; loss.backward(): both for one batch, in a scope of its own. Hooks
 * run, so it is collective where the model is sharded. Gradients add to what is there.
 *
 * @param model   of fsdp_model_create()
 * @param batch   of the model's task; one without labels gives 0
 * @param options NULL: all defaults
 * @param loss    out: without the scaler's scale; 0 on the meta device. NULL: not wanted
 * @return the first failure; what the tape had recorded is dropped then
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_forward_backward(fsdp_module *model, fsdp_device *device, const fsdp_batch *batch,
                      const fsdp_forward_backward_options *options, double *loss);

#ifdef __cplusplus
}
#endif
