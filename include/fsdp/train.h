/**
 * @file
 * What a training script needs around its loop: its arguments, models by name, a rank's device,
 * forward and backward of a batch, progress bars.
 *
 *     fsdp_pretrained weights;
 *     FSDP_TRY(fsdp_pretrained_open("t5-base", false, &weights));
 *     FSDP_TRY(fsdp_model_create(&weights.config, &model));
 *     FSDP_TRY(fsdp_fully_sharded_data_parallel(model, group, device, &options));
 *     FSDP_TRY(fsdp_pretrained_load(&weights, model, group, seed, NULL));
 *     fsdp_pretrained_close(&weights);
 */
#pragma once
#include <stdio.h>

#include <fsdp/base.h>
#include <fsdp/ckpt.h>
#include <fsdp/comm.h>
#include <fsdp/models.h>
#include <fsdp/nn.h>
#include <fsdp/optim.h>
#include <fsdp/options.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @name Models by name
 * from_pretrained() in steps, between which the module is sharded: no rank ever holds the whole
 * model. @{ */
/** A model's files; fields are read, not changed. Ended by fsdp_pretrained_close(). */
typedef struct fsdp_pretrained {
    char *dir; /**< where it was found: config.json, the weights, the tokenizer's files */
    fsdp_model_config config;        /**< tie_word_embeddings is what the weights say */
    fsdp_checkpoint_reader *weights; /**< NULL with from_config */
    /** Draw what has another shape in the weights; set between open and load. */
    bool ignore_mismatched_sizes;
    char *name_prefix; /**< that all names in the files begin with and that was taken off, so that
                            they are the model's: "model." of a LightningModule; NULL: none. What
                            DistributedDataParallel, torch.compile, FSDP1 and activation
                            checkpointing put into names is always taken off. */
} fsdp_pretrained;

/**
 * Find a model and read its configuration and the headers of its weights. Nothing is downloaded.
 *
 * @param name        a directory, or a hub name ("t5-base", "org/name") that lies in the local
 *                    Hugging Face cache: $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub,
 *                    $XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub, in this order
 * @param from_config AutoModel.from_config(): weights are not looked for, load draws them
 * @param pretrained  out: the caller's memory
 * @return FSDP_ERR_NOT_FOUND naming the folders searched, or a missing file; else as
 *         fsdp_model_config_read() and fsdp_checkpoint_open()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_pretrained_open(const char *name, bool from_config,
                                                          fsdp_pretrained *pretrained);
/**
 * Give the parameters of a module that fsdp_model_create() made of `config` their values, sharded
 * or not. Collective.
 *
 * @param group  the ranks that load; NULL: this one alone
 * @param seed   of what is not in the files but drawn: a fresh head, with from_config everything
 * @param report out: freed with fsdp_load_report_free(), empty with from_config; NULL: not wanted
 * @return as fsdp_module_load()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_pretrained_load(const fsdp_pretrained *pretrained,
                                                          fsdp_module *module, fsdp_group *group,
                                                          uint64_t seed, fsdp_load_report *report);
/** Accepts what was zero-initialised and never opened. */
FSDP_API void fsdp_pretrained_close(fsdp_pretrained *pretrained);
/** @} */

/**
 * How many threads a rank computes with, when nobody says (fsdp_device_options.threads): the cores
 * that it may run on, shared out among the ranks that may run on the same ones, and no more than
 * the CPU quota of a container; at least 1.
 * Collective.
 * @param group told of it: its waits spin only where each thread has a core. NULL: a rank alone
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_default_threads(fsdp_group *group, int *threads);

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

/** @name Progress bars: tqdm
 * A bar with tqdm's look on a terminal
 *
 *     r0 Training Epoch:  45%|████▌     | 90/200 [00:12<00:15,  7.21it/s, loss=2.345]
 *
 * and, where the stream is no terminal (a log file, a pipe), a plain line now and then without
 * carriage returns. For one thread. @{ */
typedef enum fsdp_progress_colour {
    FSDP_PROGRESS_PLAIN,
    FSDP_PROGRESS_BLUE,  /**< the tutorials' training bar */
    FSDP_PROGRESS_GREEN, /**< the tutorials' validation bar */
} fsdp_progress_colour;

typedef enum fsdp_progress_style {
    FSDP_PROGRESS_AUTO,  /**< BAR on a terminal, otherwise LINES */
    FSDP_PROGRESS_BAR,   /**< one line, redrawn at most 10 times a second */
    FSDP_PROGRESS_LINES, /**< a line after each tenth, at most every 3 s, at least every 30 s */
    FSDP_PROGRESS_OFF,   /**< nothing: ranks other than 0 */
} fsdp_progress_style;

/** Zero means default. */
typedef struct fsdp_progress_options {
    FILE *file;              /**< borrowed; NULL: stderr */
    const char *description; /**< copied; NULL: none */
    int64_t total;           /**< steps to do; 0: unknown */
    fsdp_progress_colour colour;
    fsdp_progress_style style;
    int64_t line_steps; /**< LINES: a line every so many steps instead; 0: as said above */
} fsdp_progress_options;

typedef struct fsdp_progress fsdp_progress;

/**
 * Draws the empty bar.
 * @param progress out: owned by the caller, ended by fsdp_progress_destroy()
 * @return FSDP_ERR_NOMEM
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_progress_create(const fsdp_progress_options *options,
                                                          fsdp_progress **progress);
/** Draws the last state and ends its line. Accepts NULL. */
FSDP_API void fsdp_progress_destroy(fsdp_progress *progress);
/** `steps` more are done. `postfix` ("loss=2.345") stands at the end of the bar until the next one
 * that is not NULL. Accepts a NULL progress. */
FSDP_API FSDP_PRINTF(3, 4) void fsdp_progress_update(fsdp_progress *progress, int64_t steps,
                                                     const char *postfix, ...);
/** A line of its own above the bar, as tqdm.write; a newline is added. */
FSDP_API FSDP_PRINTF(2, 3) void fsdp_progress_print(fsdp_progress *progress, const char *format,
                                                    ...);
/** @} */

#ifdef __cplusplus
}
#endif
