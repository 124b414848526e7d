/**
 * @file
 * Helpers for training scripts: parse the arguments, create the device of a rank, and run forward
 * and backward of a batch. Includes <fsdp/pretrained.h> (models by name) and <fsdp/progress.h>
 * (progress bars).
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
 * Create the device of this rank: the CPU with this rank's share of the cores, like
 * torch.cuda.set_device(local_rank). Collective.
 * @param group  NULL: a single rank
 * @param device out: owned by the caller, freed by fsdp_device_destroy()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_default_device(fsdp_group *group, fsdp_device **device);

/**
 * argparse's parse_args() for main(): call fsdp_options_parse(). If --help or --print-config was
 * given, print its text to stdout; otherwise print the notes (fsdp_option.note) of the flags that
 * were given. Only rank 0 prints.
 * @param run out: false if --help or --print-config was given; the program should then exit with
 *            success
 * @return as fsdp_options_parse(); FSDP_ERR_IO if stdout cannot be written
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_parse_args(const fsdp_options_spec *spec, int argc,
                                                     char **argv, void *target,
                                                     fsdp_options **options, bool *run);

/** Zero means default. */
typedef struct fsdp_forward_backward_options {
    /** Run backward, too, and enable dropout, as after model.train(). Default: a forward only, like
     * model.eval() under torch.no_grad() */
    bool training;
    /** Used if `training` is set: the tape that records the forward for backward. It must be empty
     * before the call, and is empty after it. NULL: the call creates a tape of its own */
    fsdp_tape *tape;
    /** The loss is the sum over labels times this factor. 0: 1 / label_tokens, which gives the mean
     * over this batch's labels */
    double factor;
    fsdp_grad_scaler *scaler;      /**< used if `training` is set: multiplies the loss by its scale
                                        before backward; NULL: none */
    int micro_step, n_micro_steps; /**< gradient accumulation: see fsdp_scope_options */
} fsdp_forward_backward_options;

/**
 * loss = model(**batch).loss; loss.backward(): run forward and backward of one batch in a new
 * scope. Hooks run, so the call is collective if the model is sharded. Gradients are added to
 * existing ones.
 *
 * @param model   from fsdp_model_create()
 * @param batch   a batch for the model's task; the loss of a batch without labels is 0
 * @param options NULL: all defaults
 * @param loss    out: the loss without the scaler's scale; 0 on the meta device. May be NULL
 * @return the first failure; after a failure the tape is empty
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_forward_backward(fsdp_module *model, fsdp_device *device, const fsdp_batch *batch,
                      const fsdp_forward_backward_options *options, double *loss);

#ifdef __cplusplus
}
#endif
