/* `fsdp generate`: runs a model on prompts and reports the results. */
#pragma once
#include <fsdp/comm.h>
#include <fsdp/tensor.h>

#include "src/generate/chat_prompt.h"
#include "src/models/generation_config.h"
#include "src/pretrained/quantize_flags.h"

/* A callback that gets the next part of the generated text. */
typedef fsdp_status fsdp_generate_part_fn(void *terminal, const char *text, size_t bytes);
/* A callback that reads a line. It sets *line to the next line, without the line end, or to NULL at
 * the end of the input. The caller frees *line with fsdp_free(). */
typedef fsdp_status fsdp_generate_line_fn(void *terminal, char **line);

/* The configuration of a run. A field that is 0 or NULL has its default value. A tokenizer is
 * needed for prompts that are texts, but not for prompts that are ids. */
typedef struct fsdp_generate_config {
    const char *model;   /* folder or hub name */
    const char *adapter; /* folder of a LoRA adapter for the model; NULL: none */
    fsdp_quantize_flags quantize;
    const char *tokenizer;    /* spiece.model or a folder; NULL: the model's tokenizer */
    const char *const *texts; /* [n_texts] */
    size_t n_texts;
    /* file of texts: a text per line, or rows of JSON, CSV or Arrow; NULL: none */
    const char *input;
    const char *text_column; /* column of `input` that has the texts; NULL: a default */
    bool keep_ids;           /* fsdp_generate_result.id is wanted */
    const char *messages;    /* file of conversations; NULL: none; needs `chat` */
    bool chat;               /* each text is a user message, rendered by the chat template */
    const char *system;      /* system message before each user message; NULL: none */
    /* generation.negative_prompt_ids as a text; NULL: none. Needs guidance_scale */
    const char *negative_prompt;
    const char *chat_template, *chat_template_kwargs; /* as in training; may be NULL */
    bool continue_final_message;                      /* see fsdp_chat_prompts */
    const char *input_ids; /* JSON or JSON lines file with prompts as ids; NULL: none */
    /* put before every text; NULL: the prefix in the model's config.json */
    const char *task_prefix;
    /* maximum number of ids of a prompt; 0: no limit. Used only if max_source_length_given is
     * true */
    int max_source_length;
    /* true: prompts are cut to max_source_length ids. false: a text for a seq2seq model is cut to
     * 512 ids, and no other prompt is cut. */
    bool max_source_length_given;
    fsdp_generation_settings generation; /* settings that override the model's
                                            generation_config.json */
    int64_t num_return_sequences;        /* 0: from generation_config.json */
    uint64_t seed;                       /* for sampling */
    /* true if the user gave a seed, which is an error without sampling */
    bool asks_for_seed;
    int batch_size;         /* number of prompts per rank in a round; 0: 8 */
    fsdp_dtype param_dtype; /* dtype of computation */
    bool reshard_each_step;
    const char *device;   /* as fsdp_rank_device_create() takes it; NULL: the default */
    int threads_per_rank; /* 0: as fsdp_default_threads() says */
    const char *isa;
    /* Called on rank 0 with each new part of the text while it is generated. The text in a part is
     * final. NULL: not called. If not NULL, there must be exactly one prompt. */
    fsdp_generate_part_fn *part;
    /* A function that reads the next line of an interactive conversation on rank 0; NULL: not
     * interactive. If it is not NULL, the prompts come only from it: the fields for prompts must be
     * empty, `chat` must be true, and `part` must be set. */
    fsdp_generate_line_fn *read_line;
    void *terminal; /* argument of part() and read_line() */
} fsdp_generate_config;

/* One generated sequence. Pointers are valid only during the call of the report function. */
typedef struct fsdp_generate_result {
    /* `index` is the index of the prompt. `sequence` is the index of the sequence among the
     * num_return_sequences of this prompt. */
    size_t index, sequence;
    const char *id;     /* the id of the prompt's row, as in fsdp_prompt; NULL: none */
    const char *prompt; /* the prompt's text; NULL: the prompt was given as ids, or as messages */
    /* conversation: the conversation that is the prompt, as JSON; NULL: the prompt is not a
     * conversation. chat: the options with which conversations were rendered. */
    const char *conversation;
    const fsdp_chat_prompts *chat;
    /* input_ids: the prompt. ids: the generated sequence, as in fsdp_generated */
    const int32_t *input_ids, *ids;
    size_t n_input_ids, n_ids;
    size_t prompt_length; /* number of elements of `ids` before the new ones */
    bool has_score;       /* true if beam search was used */
    double score;         /* as in fsdp_generated; valid only if has_score is true */
    /* the new ids as text, without special tokens; NULL: there is no tokenizer */
    const char *text;
} fsdp_generate_result;

/* Called on rank 0 only, once for each sequence, in the order of prompts. In beam search, the best
 * sequence of a prompt is reported first. */
typedef void fsdp_generate_report_fn(const fsdp_generate_result *result, void *arg);
/* Called on rank 0 only, with a message for the user. The message does not report an error. */
typedef void fsdp_generate_note_fn(const char *note, void *arg);

/* Generate for all prompts, which are distributed over the ranks. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_generate_run(const fsdp_generate_config *config, fsdp_group *group,
                                              fsdp_generate_report_fn *report,
                                              fsdp_generate_note_fn *note, void *arg);
