/* Declarations that the files of `fsdp generate` share: the state of a run, and the functions that
 * prepare it. */
#pragma once
#include "src/base/str.h"
#include "src/comm/comm.h"
#include "src/generate/generate.h"
#include "src/generate/generate_run.h"
#include "src/generate/prompts.h"

/* The result for one sequence, in the form in which ranks send it to rank 0. */
typedef struct gathered_row {
    double score;
    int32_t prompt_length, n;
    int32_t ids[];
} gathered_row;

typedef struct generate_run {
    const fsdp_generate_config *config;
    fsdp_group *group;
    int rank, world_size;
    fsdp_device *device;
    fsdp_model *model;
    fsdp_tokenizer *tokenizer; /* NULL: prompts and results are ids only */
    fsdp_generation_config generation;
    fsdp_chat_template *chat_template; /* NULL: none, or not needed */
    char why_no_chat[512];             /* why chat_template is NULL */
    fsdp_chat_prompts chat;
    fsdp_prompts prompts;
    size_t turn; /* number of answers of an interactive conversation so far */
    size_t batch_size;
    size_t per_prompt; /* number of sequences per prompt */
    size_t row_bytes;  /* size of a gathered_row that can hold the longest possible sequence */
    /* number of prompts that get fewer new tokens than the settings allow, because the model has
     * too few positions */
    size_t n_short;
    /* NULL for an interactive conversation, which shows the answers itself */
    fsdp_generate_report_fn *report;
    fsdp_generate_note_fn *note;
    void *arg;
} generate_run;

/* Open device, model, tokenizer and chat template, and read the settings of generation. If
 * `prompts` is true, also read the prompts. Collective. The caller frees everything with
 * fsdp_generate_run_fini(), also after an error. */
FSDP_MUST_CHECK fsdp_status fsdp_generate_prepare(generate_run *g, bool prompts);
void fsdp_generate_run_fini(generate_run *g);
/* Call g->note with a message for the user. Only rank 0 does this; other ranks do nothing. */
void fsdp_generate_note(const generate_run *g, const char *text);
/* Generate for prompts [first, first + n) of the run. Collective. The caller owns *outputs, an
 * array of n * g->per_prompt items. `on_id` may be NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_generate_batch(const generate_run *g, size_t first, size_t n,
                                                fsdp_generate_id_fn *on_id, void *arg,
                                                fsdp_generated **outputs);
/* Return the options with which the texts of this run are encoded. */
fsdp_prompt_encoding fsdp_generate_encoding(const generate_run *g);
