/* `fsdp tokenize`: makes token files or an Arrow folder from texts. Threads share the work, memory
 * does not depend on the size of the files, and a run that was interrupted can go on. */
#pragma once
#include <stdatomic.h>
#include <stdio.h>

#include <fsdp/data.h>
#include <fsdp/progress.h>

#include "src/data/chat_options.h"
#include "src/data/form_options.h"
#include "src/tokenize/output.h"

typedef struct fsdp_tokenize_config {
    const char *tokenizer, *data, *validation_data, *output;
    int task;                                              /* fsdp_task */
    int format;                                            /* fsdp_tokenize_format */
    const char *task_prefix, *text_column, *target_column; /* NULL: not given */
    fsdp_chat_row_options chat;
    fsdp_form_options form;
    bool wikihow_cleaning;
    bool append_eos, add_special_tokens;
    int64_t max_samples, max_seq_length, block_size;
    int max_source_length, max_target_length; /* 0: not given */
    double validation_fraction;
    int64_t seed;
    int threads; /* 0: one for each available processor */
    bool resume, overwrite;
    int64_t journal_bytes; /* bytes of output after which the journal is written again */

    bool check; /* print the tokens of the first `rows` records instead */
    int64_t rows;

    int64_t train_vocab; /* make a tokenizer of this size instead; 0: no */
    int64_t min_frequency;
    int words; /* how texts are split into words: an fsdp_word_pattern minus FSDP_WORDS_GPT2 */
    fsdp_option_list special_tokens;

    /* The fields below are not options. */
    const atomic_bool *interrupted; /* NULL: never */
    bool progress;                  /* show a bar on stderr */
    struct {
        bool append_eos, add_special_tokens, task_prefix, text_column, target_column;
        bool max_source_length, max_target_length, max_seq_length, validation_fraction, seed;
        bool rows, min_frequency, special_tokens, words;
    } asked_for;
} fsdp_tokenize_config;

/* Run `fsdp tokenize`. Print lines for the user to `out`. Return FSDP_ERR_STATE if the run was
 * interrupted. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenize_run(const fsdp_tokenize_config *config, FILE *out);

/* ---- parts of a run, for this folder ---- */

/* The inputs that every run opens, whether it tokenizes, checks or makes a vocabulary. */
typedef struct fsdp_tokenize_inputs {
    fsdp_tokenizer *tokenizer; /* NULL: --train-vocab */
    fsdp_chat_template *chat_template;
    char why_no_chat[512];
    fsdp_dataset_options rows; /* with defaults filled in */
    fsdp_encode_form form;
    fsdp_record_source *source;
    char **class_names; /* [n_classes]; NULL: classes are numbers, or there are none */
    size_t n_classes;
    int threads;
} fsdp_tokenize_inputs;

FSDP_MUST_CHECK fsdp_status fsdp_tokenize_inputs_open(const fsdp_tokenize_config *config,
                                                      fsdp_tokenize_inputs *inputs);
void fsdp_tokenize_inputs_close(fsdp_tokenize_inputs *inputs);
/* Create a progress bar of the texts in MiB. *bar is NULL if there is to be none. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenize_bar(const fsdp_tokenize_config *config,
                                              const fsdp_tokenize_inputs *inputs,
                                              const char *description, fsdp_progress **bar);
/* Return FSDP_ERR_INVALID if an option that the user asked for had no effect on the rows. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenize_check_uses(const fsdp_tokenize_config *config,
                                                     unsigned uses);

/* Print the tokens of the first records as tables (check.c). */
FSDP_MUST_CHECK fsdp_status fsdp_tokenize_check(const fsdp_tokenize_config *config,
                                                fsdp_tokenize_inputs *inputs, FILE *out);
/* Learn a byte-level BPE vocabulary, and write a folder with it (train_vocab.c). */
FSDP_MUST_CHECK fsdp_status fsdp_tokenize_train_vocab(const fsdp_tokenize_config *config,
                                                      fsdp_tokenize_inputs *inputs, FILE *out);
