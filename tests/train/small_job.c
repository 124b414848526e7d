/* See small_job.h. */
#include "tests/train/small_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/io.h"

/* A model whose sizes divide nothing evenly, and 37 rows of ids. */
const char job_t5[] =
    "{\"model_type\": \"t5\", \"architectures\": [\"T5ForConditionalGeneration\"],"
    " \"is_encoder_decoder\": true, \"d_model\": 21, \"d_kv\": 5, \"num_heads\": 3, \"d_ff\": 37,"
    " \"num_layers\": 2, \"num_decoder_layers\": 2, \"vocab_size\": 67,"
    " \"relative_attention_num_buckets\": 8, \"relative_attention_max_distance\": 20,"
    " \"dropout_rate\": 0.1, \"layer_norm_epsilon\": 1e-6, \"initializer_factor\": 1.0,"
    " \"feed_forward_proj\": \"gated-gelu\", \"tie_word_embeddings\": false,"
    " \"pad_token_id\": 0, \"eos_token_id\": 1, \"decoder_start_token_id\": 0}";

const char job_llama[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 67,"
    " \"hidden_size\": 21, \"intermediate_size\": 37, \"num_hidden_layers\": 2,"
    " \"num_attention_heads\": 3, \"num_key_value_heads\": 1, \"head_dim\": 6,"
    " \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0,"
    " \"hidden_act\": \"silu\", \"initializer_range\": 0.02, \"tie_word_embeddings\": false,"
    " \"bos_token_id\": 1, \"eos_token_id\": 2}";

const char job_bert[] =
    "{\"model_type\": \"bert\", \"architectures\": [\"BertForSequenceClassification\"],"
    " \"vocab_size\": 67, \"hidden_size\": 21, \"intermediate_size\": 37, \"num_hidden_layers\": 2,"
    " \"num_attention_heads\": 3, \"max_position_embeddings\": 40, \"type_vocab_size\": 2,"
    " \"hidden_act\": \"gelu\", \"layer_norm_eps\": 1e-12, \"hidden_dropout_prob\": 0.1,"
    " \"attention_probs_dropout_prob\": 0.1, \"initializer_range\": 0.2, \"pad_token_id\": 0,"
    " \"id2label\": {\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"},"
    " \"label2id\": {\"a\": 0, \"b\": 1, \"c\": 2}}";

enum {
    ROWS = 37
};

void job_write_rows(fsdp_test *t, const char *path, int rows)
{
    FILE *file = fopen(path, "w");
    ASSERT(file);
    for (int i = 0; i < rows; i++) {
        fprintf(file, "{\"input_ids\": [%d", 2 + i);
        for (int k = 1; k < 3 + i * 7 % 19; k++)
            fprintf(file, ", %d", 2 + (i * 31 + k * k * 7) % 65);
        fputs("], \"labels\": [", file);
        for (int k = 0; k < 1 + i * 5 % 7; k++)
            fprintf(file, "%d, ", 2 + (i + k * 3) % 65);
        fputs("1]}\n", file);
    }
    fclose(file);
}

/* From the third token on, each token determines the next one; the first two are the prompt. */
void job_write_causal_rows(fsdp_test *t, const char *path, int rows)
{
    FILE *file = fopen(path, "w");
    ASSERT(file);
    for (int i = 0; i < rows; i++) {
        fprintf(file, "{\"prompt_length\": 2, \"input_ids\": [%d", 3 + i % 31);
        for (int k = 1; k < 4 + i * 7 % 19; k++)
            fprintf(file, ", %d", 3 + (i % 31 + k * 7) % 31);
        fputs("]}\n", file);
    }
    fclose(file);
}

/* Rows of class c have ids of their own: 5 + 20 c to 24 + 20 c. */
void job_write_classified_rows(fsdp_test *t, const char *path, int rows)
{
    FILE *file = fopen(path, "w");
    ASSERT(file);
    for (int i = 0; i < rows; i++) {
        fputs("{\"input_ids\": [2", file);
        for (int k = 0; k < 2 + i * 7 % 11; k++)
            fprintf(file, ", %d", 5 + 20 * (i % 3) + (i * 31 + k * k * 7) % 20);
        fprintf(file, ", 3], \"label\": %d}\n", i % 3);
    }
    fclose(file);
}

/* A folder with model and data whose path all ranks know; rank 0 creates it. */
void job_make_files_of(fsdp_test *t, const char *config, job_write_rows_fn *write,
                       char dir[JOB_PATH])
{
    char path[JOB_PATH + 32];
    if (t->rank == 0) {
        snprintf(dir, JOB_PATH, "%s", fsdp_test_dir(t));
        snprintf(path, sizeof path, "%s/model", dir);
        ASSERT_OK(fsdp_directory_make(path));
        snprintf(path, sizeof path, "%s/model/config.json", dir);
        ASSERT_OK(fsdp_file_write(path, config, strlen(config)));
        snprintf(path, sizeof path, "%s/train.jsonl", dir);
        write(t, path, ROWS);
        snprintf(path, sizeof path, "%s/validation.jsonl", dir);
        write(t, path, 13);
    }
    if (t->group)
        ASSERT_OK(fsdp_broadcast(t->group, dir, JOB_PATH, 0));
}

void job_make_files(fsdp_test *t, char dir[JOB_PATH])
{
    job_make_files_of(t, job_t5, job_write_rows, dir);
}

/* Train on the files in `dir` with the words of `more` (separated by spaces) as additional flags.
 * They may have --data and --validation-data of their own. */
fsdp_status job_train_printing(fsdp_group *group, const char *dir, const char *more, FILE *out,
                               fsdp_train_result *result)
{
    enum {
        WORDS = 64
    };
    char text[4096], *argv[WORDS];
    int argc = 0;
    char data[1024] = "", validation[1024] = "";
    if (!strstr(more, "--data "))
        snprintf(data, sizeof data, "--data %s/train.jsonl", dir);
    if (!strstr(more, "--validation-data "))
        snprintf(validation, sizeof validation, "--validation-data %s/validation.jsonl", dir);
    snprintf(text, sizeof text,
             "train --model %s/model --from-config %s %s --threads-per-rank 1 --batch-size 3 %s",
             dir, data, validation, more);
    char *rest = text;
    for (char *word; argc < WORDS - 1 && (word = strsep(&rest, " "));)
        if (*word)
            argv[argc++] = word;
    argv[argc] = NULL;
    fsdp_train_config config = {0};
    fsdp_options *options;
    FSDP_TRY(fsdp_options_parse(fsdp_train_options(), argc, argv, &config, &options));
    fsdp_status status = fsdp_train_run(&config, group, out, result);
    if (status != FSDP_OK)
        fsdp_group_abort(group, status);
    fsdp_options_destroy(options);
    return status;
}

fsdp_status job_train(fsdp_group *group, const char *dir, const char *more,
                      fsdp_train_result *result)
{
    return job_train_printing(group, dir, more, NULL, result);
}

/* The same on one rank. */
void job_train_alone(fsdp_test *t, const char *dir, const char *more, fsdp_train_result *result)
{
    fsdp_group *one;
    ASSERT_OK(fsdp_init_process_group(NULL, &one));
    ASSERT_OK(job_train(one, dir, more, result));
    fsdp_destroy_process_group(one);
}

/* Number `key` of the first n steps in `dir`/m.jsonl. */
void job_read_steps(fsdp_test *t, const char *dir, const char *key, double *to, int n)
{
    char path[JOB_PATH + 32], line[4096], quoted[64];
    int found = 0;
    snprintf(path, sizeof path, "%s/m.jsonl", dir);
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    FILE *file = fopen(path, "r");
    ASSERT(file);
    while (found < n && fgets(line, sizeof line, file)) {
        const char *at = strstr(line, quoted);
        if (at && strstr(line, "step"))
            to[found++] = strtod(at + strlen(quoted), NULL);
    }
    fclose(file);
    ASSERT_INT(found, n);
}
