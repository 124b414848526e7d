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
 * The device of this rank: the CPU with this rank's share of the cores, as
 * torch.cuda.set_device(local_rank). Collective.
 * @param group  NULL: a single rank
 * @param device out: owned by the caller, freed by fsdp_device_destroy()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_default_device(fsdp_group *group, fsdp_device **device);

/**
 * argparse's parse_args() for main(): calls fsdp_options_parse(). Prints to stdout the text that
 * --help or --print-config asks for, or otherwise the notes of the given flags. Among ranks
 * started by `fsdp launch`, only rank 0 prints.
 * @param run out: false if --help or --print-config was given; the program should then exit with
 * success
 * @return as fsdp_options_parse(); FSDP_ERR_IO if stdout cannot be written
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_parse_args(const fsdp_options_spec *spec, int argc,
                                                     char **argv, void *target,
                                                     fsdp_options **options, bool *run);

/** Zero means default. */
typedef struct fsdp_forward_backward_options {
    /** training: a backward follows, and dropout is on, as model.train(). Default: model.eval()
     * under torch.no_grad() */
    bool training;
    /** training: records the forward for backward; empty before and after. NULL: a tape of this
     * call's own */
    fsdp_tape *tape;
    /** multiplies the sum over labels; 0: 1 / label_tokens, the mean over this batch's labels */
    double factor;
    fsdp_grad_scaler *scaler;      /**< training: gradients are those of the loss times its scale */
    int micro_step, n_micro_steps; /**< gradient accumulation: see fsdp_scope_options */
} fsdp_forward_backward_options;

/**
 * loss = model(**batch).loss; loss.backward(): both for one batch, in a scope of its own. Runs
 * hooks, so it is collective if the model is sharded. Gradients are added to existing ones.
 *
 * @param model   from fsdp_model_create()
 * @param batch   for the model's task; a batch without labels gives 0
 * @param options NULL: all defaults
 * @param loss    out: without the scaler's scale; 0 on the meta device. NULL: not wanted
 * @return the first failure; the tape's records are dropped then
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_forward_backward(fsdp_module *model, fsdp_device *device, const fsdp_batch *batch,
                      const fsdp_forward_backward_options *options, double *loss);

#ifdef __cplusplus
}
#endif
