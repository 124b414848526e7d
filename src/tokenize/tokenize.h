/* `fsdp tokenize`: makes token files or an Arrow folder from texts. Several threads encode texts,
 * memory does not depend on the size of the files, and a run that was interrupted can be
 * continued. */
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
    int task;         /* fsdp_task */
    int problem_type; /* CLASSIFICATION: an fsdp_problem_type plus 1; 0: found from the labels */
    int format;       /* fsdp_tokenize_format */
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
    /* the journal is written again each time the output has grown by this many bytes */
    int64_t journal_bytes;

    bool check; /* --check: write no output; print the tokens of the first `rows` records */
    int64_t rows;

    /* --train-vocab: write no token files; train a tokenizer with this many tokens; 0: not given */
    int64_t train_vocab;
    int64_t min_frequency;
    /* how texts are split into words: an fsdp_word_pattern minus FSDP_WORDS_GPT2, so that 0 means
     * GPT-2's pattern */
    int words;
    fsdp_option_list special_tokens;

    /* The fields below are not options. */
    /* the run stops when this becomes true; NULL: it is never interrupted */
    const atomic_bool *interrupted;
    bool progress; /* show a bar on stderr */
    struct {
        bool append_eos, add_special_tokens, task_prefix, text_column, target_column;
        bool max_source_length, max_target_length, max_seq_length, validation_fraction, seed;
        bool rows, min_frequency, special_tokens, words;
        bool journal_bytes;
    } asked_for;
    /* The task is seq2seq, and the user gave these limits, perhaps in an environment variable. If a
     * limit was not given, only texts are cut, to its default. */
    struct {
        bool max_source_length, max_target_length;
    } given;
} fsdp_tokenize_config;

/* Run `fsdp tokenize`. Print messages for the user to `out`. Return FSDP_ERR_STATE if the run was
 * interrupted. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenize_run(const fsdp_tokenize_config *config, FILE *out);

/* ---- what the files of src/tokenize share ---- */

/* The inputs that every run opens, whether it tokenizes, checks (--check) or trains a tokenizer
 * (--train-vocab). */
typedef struct fsdp_tokenize_inputs {
    fsdp_tokenizer *tokenizer; /* NULL if --train-vocab was given */
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
/* Create a progress bar that counts MiB of text. Set *bar to NULL if no bar is shown. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenize_bar(const fsdp_tokenize_config *config,
                                              const fsdp_tokenize_inputs *inputs,
                                              const char *description, fsdp_progress **bar);
/* Return FSDP_ERR_INVALID if the user gave an option that has no effect on rows with the flags
 * `uses`, which are FSDP_USES_* flags (src/data/rows/rows_form.h). */
FSDP_MUST_CHECK fsdp_status fsdp_tokenize_check_uses(const fsdp_tokenize_config *config,
                                                     unsigned uses);

/* Print the tokens of the first records as tables (check.c). */
FSDP_MUST_CHECK fsdp_status fsdp_tokenize_check(const fsdp_tokenize_config *config,
                                                fsdp_tokenize_inputs *inputs, FILE *out);
/* Train a byte-level BPE tokenizer, and write its folder (train_vocab.c). */
FSDP_MUST_CHECK fsdp_status fsdp_tokenize_train_vocab(const fsdp_tokenize_config *config,
                                                      fsdp_tokenize_inputs *inputs, FILE *out);
