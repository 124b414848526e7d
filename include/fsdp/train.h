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
 * Create the device of this rank, like torch.cuda.set_device(local_rank). $FSDP_DEVICE may name the
 * device, as fsdp_device_options.name does. If $FSDP_DEVICE is not set, the device is "auto": the
 * GPU of this rank if there is one that this library can use, else the CPU with this rank's share
 * of the cores. Collective.
 * @param group  NULL: a single rank
 * @param device out: owned by the caller, destroyed with fsdp_device_destroy()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_default_device(fsdp_group *group, fsdp_device **device);

/**
 * Parse the arguments of main() with fsdp_options_parse(). If --help or --print-config was given,
 * print its text to stdout. Otherwise print the notes (fsdp_option.note) of the flags that were
 * given. Only rank 0 prints.
 * @param run out: false if --help or --print-config was given; the program should then exit with
 *            success
 * @return the errors of fsdp_options_parse(); FSDP_ERR_IO if stdout cannot be written
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_parse_args(const fsdp_options_spec *spec, int argc,
                                                     char **argv, void *target,
                                                     fsdp_options **options, bool *run);

/**
 * Print the message of fsdp_last_error() to stderr as perror() does: "program: message". If `fsdp
 * launch` started this process, give the message to the launcher instead, like
 * torch.distributed.elastic.multiprocessing.errors.record. The launcher prints the message of the
 * rank that failed first, so that an error that all ranks have is printed once. A program calls
 * this before it exits with a code other than 0.
 * @param program name of the program, which is put before the message
 */
FSDP_API void fsdp_error_print(const char *program);

/** Zero means default. */
typedef struct fsdp_forward_backward_options {
    /** true: run forward and backward with dropout, as after model.train(). false: run only
     * forward, without dropout, like model.eval() under torch.no_grad() */
    bool training;
    /** Used if `training` is true: the tape that records the forward for backward. It must be empty
     * before the call, and is empty after it. NULL: the call creates a tape and frees it */
    fsdp_tape *tape;
    /** The loss is the sum over all labels, multiplied by this factor. 0: 1 / label_tokens, so that
     * the loss is the mean over this batch's labels */
    double factor;
    fsdp_grad_scaler *scaler;      /**< used if `training` is true: the loss is multiplied by the
                                        scaler's scale before backward; NULL: none */
    int micro_step, n_micro_steps; /**< gradient accumulation: see fsdp_scope_options */
    double label_smoothing;        /**< in [0, 1); see fsdp_scope_options */
} fsdp_forward_backward_options;

/**
 * Run forward and backward of one batch in a new scope, like loss = model(**batch).loss;
 * loss.backward(). If the model is sharded, the call gathers its units, so it is collective. The
 * new gradients are added to the gradients that the parameters already have.
 *
 * @param model   from fsdp_model_create()
 * @param batch   a batch for the model's task; the loss of a batch without labels is 0
 * @param options NULL: all defaults
 * @param loss    out: the loss without the scaler's scale; 0 on the meta device. May be NULL
 * @return the first error; the tape is empty after an error, too
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_forward_backward(fsdp_module *model, fsdp_device *device, const fsdp_batch *batch,
                      const fsdp_forward_backward_options *options, double *loss);

#ifdef __cplusplus
}
#endif
