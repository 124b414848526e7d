/* BertForMaskedLM: BERT with the head of its pretraining (Devlin et al. 2019, section 3.1). The
 * head transforms each hidden state and multiplies it by the word embeddings.
 *
 * Only tokens with a label contribute to the loss. So when a loss is computed, the head runs only
 * on the rows of these tokens. In pretraining, about one token in seven has a label.
 *
 * Legend: T tokens, n rows with a label, D hidden_size, V vocabulary. */
#include "src/autograd/activation.h"
#include "src/base/alloc.h"
#include "src/models/bert.h"
#include "src/models/layers.h"

static fsdp_args one(fsdp_tensor *x)
{
    return (fsdp_args){.t = {x}, .n = 1};
}

/* --- rows with a label --- */

/* The rows of the batch that have a label. If no row has a label, or every row has one, n is 0 and
 * the head runs on all rows. */
typedef struct labelled {
    int32_t n;
    int32_t *rows, *labels; /* [n]; one block, owned, freed by fsdp_free(rows) */
} labelled;

/* Return the rows of the scope's batch that have a label. If there is not enough memory, the scope
 * fails. */
static labelled find_labelled(fsdp_scope *s)
{
    const fsdp_batch *batch = fsdp_scope_get_options(s)->batch;
    labelled l = {0};
    if (batch->label_tokens == 0 || batch->label_tokens == batch->source_tokens)
        return l;
    l.rows = fsdp_calloc(2 * (size_t)batch->label_tokens, sizeof *l.rows);
    if (!l.rows) {
        fsdp_scope_fail(s, FSDP_ERR_NOMEM);
        return l;
    }
    l.labels = l.rows + batch->label_tokens;
    for (int32_t t = 0; t < batch->source_tokens; t++) {
        if (batch->labels[t] == FSDP_IGNORE_INDEX)
            continue;
        l.rows[l.n] = t;
        l.labels[l.n++] = batch->labels[t];
    }
    return l;
}

/* --- the head --- */

void fsdp_bert_transform_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                 fsdp_args *out)
{
    const fsdp_bert_dense *d = self->impl;
    fsdp_tensor *wide = fsdp_apply_linear(s, in->t[0], &d->dense);
    fsdp_tensor *active = fsdp_activate(s, d->activation, wide);
    fsdp_drop(s, wide);
    *out = one(fsdp_apply_layer_norm(s, active, &d->norm, d->config->layer_norm_eps));
    fsdp_drop(s, active);
}

void fsdp_bert_decoder_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                               fsdp_args *out)
{
    const fsdp_bert_masked_lm *m = self->impl;
    *out = one(fsdp_apply_linear(s, in->t[0], &m->output));
}

/* Compute the loss from the output of the transform, which has all rows or only the rows with a
 * label. */
static void decoder_loss_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                 fsdp_args *out)
{
    const fsdp_bert_masked_lm *m = self->impl;
    labelled l = find_labelled(s);
    if (fsdp_scope_ok(s))
        *out = one(fsdp_linear_cross_entropy_bias_(
            s, in->t[0], fsdp_read(s, m->output.weight), fsdp_read(s, m->output.bias),
            l.n ? l.labels : fsdp_scope_get_options(s)->batch->labels, s->run->loss_factor));
    fsdp_free(l.rows);
}

static void run_predictions(fsdp_scope *s, const fsdp_bert_masked_lm *m, const fsdp_args *in,
                            fsdp_forward_fn *decoder, fsdp_args *out)
{
    fsdp_tensor *x = fsdp_module_call1(s, m->transform, in->t[0]);
    *out = fsdp_module_call(s, m->decoder, decoder, one(x));
    fsdp_drop(s, x);
}

void fsdp_bert_predictions_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                   fsdp_args *out)
{
    run_predictions(s, self->impl, in, NULL, out);
}

static void predictions_loss_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                     fsdp_args *out)
{
    run_predictions(s, self->impl, in, decoder_loss_forward, out);
}

void fsdp_bert_cls_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    const fsdp_bert_masked_lm *m = self->impl;
    *out = fsdp_module_call(s, m->predictions, NULL, *in);
}

static void cls_loss_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    const fsdp_bert_masked_lm *m = self->impl;
    *out = fsdp_module_call(s, m->predictions, predictions_loss_forward, *in);
}

/* --- the root --- */

static fsdp_tensor *hidden_of(fsdp_scope *s, const fsdp_bert_masked_lm *m)
{
    return fsdp_module_call(s, m->bert, fsdp_bert_hidden_forward, (fsdp_args){.n = 0}).t[0];
}

static void loss_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    (void)in;
    const fsdp_bert_masked_lm *m = self->impl;
    fsdp_tensor *x = hidden_of(s, m);
    labelled l = find_labelled(s);
    if (l.n && fsdp_scope_ok(s)) {
        fsdp_tensor *all = x;
        x = fsdp_gather_rows(s, all, l.rows, l.n);
        fsdp_drop(s, all);
    }
    fsdp_free(l.rows);
    *out = fsdp_module_call(s, m->cls, cls_loss_forward, one(x));
    fsdp_drop(s, x);
}

static void logits_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    (void)in;
    const fsdp_bert_masked_lm *m = self->impl;
    fsdp_tensor *hidden = hidden_of(s, m);
    *out = (fsdp_args){.t = {fsdp_module_call1(s, m->cls, hidden), hidden}, .n = 2};
}

fsdp_tensor *fsdp_bert_masked_lm_loss(fsdp_scope *s, fsdp_module *model, float factor)
{
    if (!fsdp_bert_check_batch(s, model))
        return NULL;
    s->run->loss_factor = factor;
    return fsdp_module_call(s, model, loss_forward, (fsdp_args){.n = 0}).t[0];
}

fsdp_model_outputs fsdp_bert_masked_lm_logits(fsdp_scope *s, fsdp_module *model)
{
    if (!fsdp_bert_check_batch(s, model))
        return (fsdp_model_outputs){0};
    fsdp_args out = fsdp_module_call(s, model, logits_forward, (fsdp_args){.n = 0});
    return (fsdp_model_outputs){.logits = out.t[0], .last_hidden = out.t[1]};
}
