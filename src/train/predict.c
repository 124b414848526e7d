/* See predict.h. The rows are processed in rounds, each with one batch of consecutive rows for each
 * rank. As in a validation, rank 0 has the first batch of a round, and rank 1 the next one. A rank
 * without rows in the last round takes part with an empty batch, because the model is sharded. The
 * scores of each row are gathered and added in the order of rows. */
#include "src/train/predict.h"

#include <fsdp/data.h>

#include "src/base/alloc.h"
#include "src/base/log.h"
#include "src/comm/agree.h"
#include "src/generate/generate.h"

/* The scores of the text that was generated for a row, and the text's number of tokens. */
typedef struct row_scores {
    double rouge1, rouge2, rougeL, rougeLsum, length;
} row_scores;

/* The rows of this rank in a round. */
typedef struct block {
    fsdp_example *examples; /* [n] */
    fsdp_batch_row *rows;   /* [n] */
    size_t n, first;        /* first: index of rows[0] in the validation data */
} block;

static void block_fini(block *b, size_t size)
{
    for (size_t i = 0; b->examples && i < size; i++)
        fsdp_example_fini(&b->examples[i]);
    fsdp_free(b->examples);
    fsdp_free(b->rows);
}

static fsdp_status read_block(const fsdp_trainer *t, block *b)
{
    const bool causal = t->task == FSDP_TASK_CAUSAL_LM;
    for (size_t i = 0; i < b->n; i++) {
        fsdp_example *example = &b->examples[i];
        FSDP_TRY(fsdp_dataset_get(t->validation_set, (int64_t)(b->first + i), example));
        b->rows[i] =
            (fsdp_batch_row){.source = example->source.ids,
                             .source_len = (int32_t)(causal ? fsdp_example_prompt_length(example)
                                                            : example->source.len)};
    }
    return FSDP_OK;
}

static fsdp_status decode(const fsdp_trainer *t, const int32_t *ids, size_t n, char **text)
{
    return fsdp_tokenizer_decode(t->tokenizer.tokenizer, ids, n, FSDP_DECODE_TEXT, text);
}

/* Set *text to the reference of a row: its labels or, for a causal model, the tokens after its
 * prompt. Labels that do not count in the loss are left out. */
static fsdp_status decode_reference(const fsdp_trainer *t, const fsdp_example *example, char **text)
{
    const bool causal = t->task == FSDP_TASK_CAUSAL_LM;
    const fsdp_token_list *from = causal ? &example->source : &example->labels;
    const size_t begin = causal ? fsdp_example_prompt_length(example) : 0;
    fsdp_token_list kept = {0};
    FSDP_TRY(fsdp_token_list_set(&kept, from->ids, from->len));
    kept.len = 0;
    for (size_t i = begin; i < from->len; i++) {
        const bool counts =
            !causal || i >= example->labels.len || example->labels.ids[i] != FSDP_IGNORE_INDEX;
        if (counts && from->ids[i] >= 0)
            kept.ids[kept.len++] = from->ids[i];
    }
    const fsdp_status status = decode(t, kept.ids, kept.len, text);
    fsdp_token_list_fini(&kept);
    return status;
}

static fsdp_status score_row(const fsdp_trainer *t, const fsdp_example *example,
                             const fsdp_generated *output, row_scores *scores)
{
    const fsdp_rouge_options options = {.stemmer = t->config->rouge_stemmer, .rougeLsum = true};
    const size_t n = output->ids.len - output->prompt_length;
    char *reference = NULL, *prediction = NULL;
    fsdp_rouge rouge;
    fsdp_status status = decode_reference(t, example, &reference);
    if (status == FSDP_OK)
        status = decode(t, output->ids.ids + output->prompt_length, n, &prediction);
    if (status == FSDP_OK) {
        const char *const r = reference, *const p = prediction;
        status = fsdp_rouge_mean_with(&options, &r, &p, 1, &rouge);
    }
    if (status == FSDP_OK)
        *scores = (row_scores){rouge.rouge1.fmeasure, rouge.rouge2.fmeasure, rouge.rougeL.fmeasure,
                               rouge.rougeLsum.fmeasure, (double)n};
    fsdp_text_free(reference);
    fsdp_text_free(prediction);
    return status;
}

/* Generate texts for the rows of a block, and set mine[0 .. b->n) to their scores. */
static fsdp_status predict_block(const fsdp_trainer *t, block *b, row_scores *mine)
{
    fsdp_batch *batch = NULL;
    fsdp_generated *outputs = NULL;
    const fsdp_generate_options options = {.config = &t->prediction,
                                           .seed = (uint64_t)t->config->seed,
                                           .first_row = (int64_t)b->first,
                                           .tokenizer = t->tokenizer.tokenizer};
    fsdp_status status = read_block(t, b);
    if (status == FSDP_OK)
        status = fsdp_batch_create(b->rows, (int32_t)b->n, &t->model->info.format, &batch);
    status = fsdp_agree(t->group, status);
    if (status == FSDP_OK)
        status = fsdp_generate(t->model, t->device, batch, &options, &outputs);
    for (size_t i = 0; status == FSDP_OK && i < b->n; i++)
        status = score_row(t, &b->examples[i], &outputs[i], &mine[i]);
    fsdp_generated_free(outputs, b->n);
    fsdp_batch_release(batch);
    return status;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Run one round. Each rank generates texts for up to `size` rows; the rows of rank 0 begin with row
 * `first`. Add the scores of all ranks to *sum. */
static fsdp_status predict_round(const fsdp_trainer *t, size_t first, size_t rows, size_t size,
                                 row_scores *mine, row_scores *all, row_scores *sum)
{
    const size_t ranks = (size_t)fsdp_group_world_size(t->group);
    const size_t begin = first + (size_t)fsdp_group_rank(t->group) * size;
    block b = {.first = least(begin, rows), .n = begin < rows ? least(size, rows - begin) : 0};
    b.examples = fsdp_calloc(size, sizeof *b.examples);
    b.rows = fsdp_calloc(size, sizeof *b.rows);
    fsdp_status status = fsdp_agree(t->group, b.examples && b.rows ? FSDP_OK : FSDP_ERR_NOMEM);
    if (status == FSDP_OK)
        status = predict_block(t, &b, mine);
    block_fini(&b, size);
    status = fsdp_agree_gather(t->group, status, mine, size * sizeof *mine, all);
    for (size_t i = 0; status == FSDP_OK && i < least(size * ranks, rows - first); i++) {
        sum->rouge1 += all[i].rouge1;
        sum->rouge2 += all[i].rouge2;
        sum->rougeL += all[i].rougeL;
        sum->rougeLsum += all[i].rougeLsum;
        sum->length += all[i].length;
    }
    return status;
}

/* Return the number of rows that a validation generates texts for. */
static size_t count_rows(const fsdp_trainer *t, size_t per_round)
{
    const size_t rows = (size_t)fsdp_dataset_len(t->validation_set);
    const size_t most = (size_t)t->config->eval_iters * per_round;
    return most ? least(most, rows) : rows;
}

/* Return the number of rows of all ranks in a round. */
static size_t rows_of_a_round(const fsdp_trainer *t)
{
    return (size_t)t->config->validation_batch_size * (size_t)fsdp_group_world_size(t->group);
}

fsdp_status fsdp_predict(fsdp_trainer *t, fsdp_rouge *scores, double *length)
{
    const size_t size = (size_t)t->config->validation_batch_size;
    const size_t per_round = rows_of_a_round(t);
    const size_t rows = count_rows(t, per_round);
    row_scores sum = {0}, *mine = fsdp_calloc(size, sizeof *mine);
    row_scores *all = fsdp_calloc(per_round, sizeof *all);
    fsdp_trainer_at(t, "generating texts of validation rows");
    fsdp_status status = fsdp_agree(t->group, mine && all ? FSDP_OK : FSDP_ERR_NOMEM);
    for (size_t first = 0; status == FSDP_OK && first < rows; first += per_round)
        status = predict_round(t, first, rows, size, mine, all, &sum);
    fsdp_free(mine);
    fsdp_free(all);
    FSDP_TRY(status);
    *scores = (fsdp_rouge){.rouge1.fmeasure = sum.rouge1 / (double)rows,
                           .rouge2.fmeasure = sum.rouge2 / (double)rows,
                           .rougeL.fmeasure = sum.rougeL / (double)rows,
                           .rougeLsum.fmeasure = sum.rougeLsum / (double)rows};
    *length = sum.length / (double)rows;
    return FSDP_OK;
}

/* --- settings --- */

static fsdp_status read_settings(fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    fsdp_generation_config *g = &t->prediction;
    FSDP_TRY(fsdp_model_generation_config(t->model, g));
    g->num_return_sequences = 1;
    if (c->generation_num_beams > 0)
        g->num_beams = c->generation_num_beams;
    if (c->generation_max_length > 0) {
        g->max_length = c->generation_max_length;
        g->max_new_tokens = 0;
    } else {
        const int most =
            c->val_max_target_length > 0 ? c->val_max_target_length : c->max_target_length;
        /* As in transformers' scripts, `most` limits the number of all ids of the decoder,
         * including the first one, which is not generated. For a causal model, `most` does not
         * include the prompt. */
        const bool counts_start = t->task == FSDP_TASK_SEQ2SEQ && most > 1;
        g->max_new_tokens = most - counts_start;
    }
    if (!t->tokenizer.tokenizer)
        return fsdp_error(FSDP_ERR_NOT_FOUND, "--predict-with-generate needs a tokenizer: %s",
                          t->tokenizer.why_none);
    return fsdp_generate_check(t->model, g);
}

fsdp_status fsdp_predict_prepare(fsdp_trainer *t)
{
    if (!t->config->predict_with_generate)
        return FSDP_OK;
    /* Check the prompts of all rows now, because the first validation may be after an epoch. Each
     * rank checks every world_size-th row. */
    fsdp_status status = read_settings(t);
    if (status == FSDP_OK) {
        status = fsdp_check_prompts(t, &t->prediction, fsdp_group_rank(t->group),
                                    fsdp_group_world_size(t->group),
                                    (int64_t)count_rows(t, rows_of_a_round(t)));
        fsdp_error_context(status, "--predict-with-generate");
    }
    status = fsdp_agree(t->group, status);
    if (status == FSDP_OK && fsdp_trainer_is_first(t) && !t->makes_examples)
        fsdp_generate_warn(&t->prediction);
    return status;
}

/* --- the best model --- */

const char *fsdp_best_measure_name(const fsdp_trainer *t)
{
    static const char *const names[] = {[FSDP_BEST_LOSS] = "loss",
                                        [FSDP_BEST_ACCURACY] = "accuracy",
                                        [FSDP_BEST_F1] = "f1",
                                        [FSDP_BEST_ROUGE1] = "rouge1",
                                        [FSDP_BEST_ROUGE2] = "rouge2",
                                        [FSDP_BEST_ROUGEL] = "rougeL",
                                        [FSDP_BEST_ROUGELSUM] = "rougeLsum"};
    return names[t->config->metric_for_best_model];
}

double fsdp_best_measure(const fsdp_trainer *t, const fsdp_step_result *result,
                         const fsdp_rouge *scores)
{
    switch ((fsdp_best_metric)t->config->metric_for_best_model) {
    case FSDP_BEST_ACCURACY:
        return -result->measures.accuracy;
    case FSDP_BEST_F1:
        return -result->measures.f1;
    case FSDP_BEST_ROUGE1:
        return -scores->rouge1.fmeasure;
    case FSDP_BEST_ROUGE2:
        return -scores->rouge2.fmeasure;
    case FSDP_BEST_ROUGEL:
        return -scores->rougeL.fmeasure;
    case FSDP_BEST_ROUGELSUM:
        return -scores->rougeLsum.fmeasure;
    case FSDP_BEST_LOSS:
        break;
    }
    return result->loss;
}
