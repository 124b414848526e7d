/* Texts of the trained model for the first rows of the validation data, beside what was to be
 * written. Rank 0's rows; its peers go along with empty batches, since the model is sharded. */
#include <string.h>

#include <fsdp/data.h>

#include "src/base/alloc.h"
#include "src/comm/agree.h"
#include "src/train/generate.h"
#include "src/train/trainer_internal.h"

static fsdp_status make_batch(const fsdp_trainer *t, int64_t row, fsdp_batch **batch)
{
    const fsdp_t5_config *c = &t->model->config;
    fsdp_example example = {0};
    fsdp_batch_row source = {0};
    int32_t n = fsdp_trainer_is_first(t) ? 1 : 0;
    fsdp_status status = n ? fsdp_dataset_get(t->validation_set, row, &example) : FSDP_OK;
    source.source = example.source.ids;
    source.source_len = (int32_t)example.source.len;
    if (status == FSDP_OK)
        status = fsdp_batch_create(&source, n, (int32_t)c->decoder_start_token_id,
                                   (int32_t)c->pad_token_id, batch);
    fsdp_example_fini(&example);
    return status;
}

/* Texts may hold line ends; an example takes three lines. */
static void print_line(FILE *out, const char *what, const char *text)
{
    fprintf(out, "%s", what);
    for (; *text; text++)
        fputc(*text == '\n' || *text == '\r' ? ' ' : *text, out);
    fputc('\n', out);
}

static void print_ids(FILE *out, const fsdp_token_list *ids)
{
    fputs("generated:", out);
    for (size_t i = 1; i < ids->len; i++) /* the first starts the decoder */
        fprintf(out, " %d", (int)ids->ids[i]);
    fputc('\n', out);
}

/* Without a tokenizer, the generated ids alone. */
static fsdp_status print_example(const fsdp_trainer *t, int64_t row, const fsdp_token_list *ids)
{
    char *source = NULL, *target = NULL, *text = NULL;
    fprintf(t->out, "\nexample %lld\n", (long long)row + 1);
    if (!t->tokenizer) {
        print_ids(t->out, ids);
        return FSDP_OK;
    }
    fsdp_status status = fsdp_dataset_texts(t->validation_set, row, &source, &target);
    if (status == FSDP_OK)
        status = fsdp_tokenizer_decode(t->tokenizer, ids->ids, ids->len,
                                       FSDP_DECODE_SKIP_SPECIAL | FSDP_DECODE_SKIP_UNKNOWN, &text);
    if (status == FSDP_OK) {
        print_line(t->out, "source:    ", source);
        print_line(t->out, "reference: ", target);
        print_line(t->out, "generated: ", text);
    }
    fsdp_text_free(source);
    fsdp_text_free(target);
    fsdp_text_free(text);
    return status;
}

static fsdp_status one_example(const fsdp_trainer *t, const fsdp_generate_options *options,
                               int64_t row)
{
    fsdp_batch *batch = NULL;
    fsdp_token_list ids = {0};
    fsdp_status status = fsdp_agree(t->group, make_batch(t, row, &batch));
    if (status == FSDP_OK)
        status = fsdp_generate_greedy(t->model, t->device, batch, options, &ids);
    if (status == FSDP_OK && t->out)
        status = print_example(t, row, &ids);
    fsdp_batch_release(batch);
    fsdp_token_list_fini(&ids);
    return status;
}

fsdp_status fsdp_report_examples(fsdp_trainer *t)
{
    fsdp_generation_config config;
    fsdp_status status = fsdp_model_generation_config(t->model, &config);
    FSDP_TRY(fsdp_agree(t->group, status));
    fsdp_generate_options options = {.max_new_tokens = t->config->max_target_length,
                                     .config = &config};
    int64_t n = t->config->generate_examples, rows = fsdp_dataset_len(t->validation_set);
    for (int64_t row = 0; row < n && row < rows; row++)
        FSDP_TRY(one_example(t, &options, row));
    return FSDP_OK;
}
