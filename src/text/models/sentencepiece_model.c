/* Reads a SentencePiece model: parses the few Protocol Buffers messages that a model consists of,
 * and converts them to a Unigram or BPE model. */
#include "src/text/models/sentencepiece_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/text/chars/utf8.h"
#include "src/text/models/bpe.h"
#include "src/text/models/unigram.h"

enum {
    /* largest number of bytes of a piece of a BPE model; a limit is needed, because the merges are
     * found by dividing each piece in all possible ways */
    BPE_PIECE_BYTES_MAX = 1024
};

/* ---- Protocol Buffers ---- */

/* The part of a message that has not been read yet. */
typedef struct reader {
    const unsigned char *p, *end;
} reader;

typedef struct field {
    uint64_t number;
    unsigned wire;  /* type of the field: 0: varint, 1: 8 bytes, 2: length-delimited, 5: 4 bytes */
    uint64_t value; /* the value of a varint */
    reader content; /* the bytes of the field if it is not a varint */
} field;

/* Read a varint, which has its least significant bits first. Return false if it is not complete. */
static bool read_varint(reader *r, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; r->p < r->end && shift < 64; shift += 7) {
        unsigned char byte = *r->p++;
        *value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

/* Read the next field. At the end of the message, set *more to false. */
static fsdp_status read_field(reader *r, field *out, bool *more)
{
    uint64_t key, size = 0;
    *more = r->p < r->end;
    if (!*more)
        return FSDP_OK;
    if (!read_varint(r, &key))
        return fsdp_error(FSDP_ERR_FORMAT, "a message ends within a field");
    *out = (field){.number = key >> 3, .wire = (unsigned)(key & 7)};
    bool whole = true;
    switch (out->wire) {
    case 0:
        whole = read_varint(r, &out->value);
        break;
    case 1:
        size = 8;
        break;
    case 2:
        whole = read_varint(r, &size);
        break;
    case 5:
        size = 4;
        break;
    default:
        return fsdp_error(FSDP_ERR_FORMAT, "a field has the wire type %u, which does not exist",
                          out->wire);
    }
    if (!whole || size > (uint64_t)(r->end - r->p))
        return fsdp_error(FSDP_ERR_FORMAT, "a message ends within a field");
    out->content = (reader){r->p, r->p + size};
    r->p += size;
    return FSDP_OK;
}

/* ---- messages ---- */

/* A string field of a message. It points into the message and does not end with NUL. */
typedef struct text_range {
    const char *text;
    size_t length;
} text_range;

/* The fields of the message TrainerSpec that are used. */
typedef struct trainer_spec {
    uint64_t model_type;
    text_range bos_piece, eos_piece, pad_piece;
} trainer_spec;

static text_range range_of(const field *f)
{
    return (text_range){(const char *)f->content.p, (size_t)(f->content.end - f->content.p)};
}

static fsdp_status parse_piece(reader r, fsdp_sentencepiece_entry *out)
{
    field f;
    bool more = true;
    *out = (fsdp_sentencepiece_entry){.text = "", .type = FSDP_PIECE_NORMAL};
    while (true) {
        FSDP_TRY(read_field(&r, &f, &more));
        if (!more)
            return FSDP_OK;
        if (f.number == 1 && f.wire == 2) {
            text_range range = range_of(&f);
            out->text = range.text;
            out->length = range.length;
        } else if (f.number == 2 && f.wire == 5) {
            memcpy(&out->score, f.content.p, sizeof out->score);
        } else if (f.number == 3 && f.wire == 0) {
            if (f.value < FSDP_PIECE_NORMAL || f.value > FSDP_PIECE_BYTE)
                return fsdp_error(FSDP_ERR_FORMAT, "a piece has the type %llu",
                                  (unsigned long long)f.value);
            out->type = (fsdp_sentencepiece_type)f.value;
        }
    }
}

static fsdp_status parse_trainer(reader r, trainer_spec *trainer, fsdp_sentencepiece_spec *out)
{
    field f;
    bool more = true;
    while (true) {
        FSDP_TRY(read_field(&r, &f, &more));
        if (!more)
            return FSDP_OK;
        if (f.number == 3 && f.wire == 0)
            trainer->model_type = f.value;
        else if (f.number == 24 && f.wire == 0)
            out->treat_whitespace_as_suffix = f.value != 0;
        else if (f.number == 35 && f.wire == 0)
            out->byte_fallback = f.value != 0;
        else if (f.number == 46 && f.wire == 2)
            trainer->bos_piece = range_of(&f);
        else if (f.number == 47 && f.wire == 2)
            trainer->eos_piece = range_of(&f);
        else if (f.number == 48 && f.wire == 2)
            trainer->pad_piece = range_of(&f);
    }
}

static fsdp_status parse_normalizer(reader r, fsdp_sentencepiece_spec *out)
{
    field f;
    bool more = true;
    while (true) {
        FSDP_TRY(read_field(&r, &f, &more));
        if (!more)
            return FSDP_OK;
        text_range range = f.wire == 2 ? range_of(&f) : (text_range){0};
        if (f.number == 1 && f.wire == 2) {
            out->normalizer_name = range.text;
            out->normalizer_name_length = range.length;
        } else if (f.number == 2 && f.wire == 2) {
            out->precompiled_charsmap = range.length ? range.text : NULL;
            out->charsmap_bytes = range.length;
        } else if (f.number == 3 && f.wire == 0) {
            out->add_dummy_prefix = f.value != 0;
        } else if (f.number == 4 && f.wire == 0) {
            out->remove_extra_whitespaces = f.value != 0;
        } else if (f.number == 5 && f.wire == 0) {
            out->escape_whitespaces = f.value != 0;
        }
    }
}

static fsdp_status add_piece(reader content, fsdp_sentencepiece_spec *out)
{
    fsdp_sentencepiece_entry piece;
    fsdp_status status = out->count > FSDP_TOKEN_ID_MAX
                             ? fsdp_error(FSDP_ERR_FORMAT, "there are too many pieces")
                             : parse_piece(content, &piece);
    if (status == FSDP_OK && piece.length == 0)
        status = fsdp_error(FSDP_ERR_FORMAT, "the text of the piece is missing");
    if (status == FSDP_OK && fsdp_utf8_valid_length(piece.text, piece.length) < piece.length)
        status = fsdp_error(FSDP_ERR_FORMAT, "the text of the piece is not UTF-8");
    if (status == FSDP_OK && !isfinite(piece.score))
        status =
            fsdp_error(FSDP_ERR_FORMAT, "the piece \"%.*s\" has the score %g",
                       piece.length > 80 ? 80 : (int)piece.length, piece.text, (double)piece.score);
    fsdp_error_context(status, "piece %zu", out->count);
    if (status != FSDP_OK)
        return status;
    if (!FSDP_GROW(out->pieces, out->cap, out->count + 1))
        return FSDP_ERR_NOMEM;
    out->pieces[out->count++] = piece;
    return FSDP_OK;
}

/* Parse a ModelProto, the outermost message of the file. */
static fsdp_status parse_model(reader r, trainer_spec *trainer, fsdp_sentencepiece_spec *out)
{
    enum {
        PIECES = 1,
        TRAINER_SPEC = 2,
        NORMALIZER_SPEC = 3
    };
    field f;
    bool more = true;
    while (true) {
        FSDP_TRY(read_field(&r, &f, &more));
        if (!more)
            return FSDP_OK;
        if (f.wire != 2)
            continue;
        if (f.number == PIECES)
            FSDP_TRY(add_piece(f.content, out));
        else if (f.number == TRAINER_SPEC)
            FSDP_TRY(parse_trainer(f.content, trainer, out));
        else if (f.number == NORMALIZER_SPEC)
            FSDP_TRY(parse_normalizer(f.content, out));
    }
}

/* ---- checks ---- */

static fsdp_status set_type(uint64_t type, fsdp_sentencepiece_spec *out)
{
    enum {
        UNIGRAM = 1,
        BPE = 2
    };
    static const char *const types[] = {"", "unigram", "BPE", "word", "character"};
    out->is_bpe = type == BPE;
    if (type == UNIGRAM || type == BPE)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "a SentencePiece model of type %s; unigram (T5) and BPE (Llama 2) are read",
                      type && type < FSDP_LENGTH(types) ? types[type] : "?");
}

static int32_t find_control(const fsdp_sentencepiece_spec *spec, text_range name)
{
    for (size_t i = 0; i < spec->count; i++) {
        const fsdp_sentencepiece_entry *piece = &spec->pieces[i];
        if (piece->type == FSDP_PIECE_CONTROL && piece->length == name.length &&
            memcmp(piece->text, name.text, name.length) == 0)
            return (int32_t)i;
    }
    return -1;
}

/* Set the ids of the special pieces in *out. */
static fsdp_status find_special(const trainer_spec *trainer, fsdp_sentencepiece_spec *out)
{
    out->unk_id = -1;
    for (size_t i = 0; i < out->count; i++) {
        if (out->pieces[i].type != FSDP_PIECE_UNKNOWN)
            continue;
        if (out->unk_id >= 0)
            return fsdp_error(FSDP_ERR_FORMAT, "the pieces %d and %zu are both of type unknown",
                              (int)out->unk_id, i);
        out->unk_id = (int32_t)i;
    }
    if (out->unk_id < 0)
        return fsdp_error(FSDP_ERR_FORMAT, "no piece is of type unknown (<unk>)");
    out->bos_id = find_control(out, trainer->bos_piece);
    out->eos_id = find_control(out, trainer->eos_piece);
    out->pad_id = find_control(out, trainer->pad_piece);
    return FSDP_OK;
}

static fsdp_status parse(const void *model, size_t bytes, fsdp_sentencepiece_spec *out)
{
    const unsigned char *p = model;
    trainer_spec trainer = {1, {"<s>", 3}, {"</s>", 4}, {"<pad>", 5}};
    if (bytes == 0)
        return fsdp_error(FSDP_ERR_FORMAT, "the file is empty");
    fsdp_status status = parse_model((reader){p, p + bytes}, &trainer, out);
    if (status == FSDP_OK && out->count == 0)
        status = fsdp_error(FSDP_ERR_FORMAT, "there are no pieces");
    if (status == FSDP_ERR_FORMAT)
        fsdp_error_context(status, "not a SentencePiece model");
    if (status == FSDP_OK)
        status = set_type(trainer.model_type, out);
    if (status == FSDP_OK)
        status = find_special(&trainer, out);
    return status;
}

fsdp_status fsdp_sentencepiece_parse(const char *name, const void *model, size_t bytes,
                                     fsdp_sentencepiece_spec *out)
{
    fsdp_sentencepiece_spec spec = {
        .add_dummy_prefix = true, .remove_extra_whitespaces = true, .escape_whitespaces = true};
    fsdp_status status = parse(model, bytes, &spec);
    fsdp_error_context(status, "%s", name);
    if (status == FSDP_OK)
        *out = spec;
    else
        fsdp_sentencepiece_spec_fini(&spec);
    return status;
}

void fsdp_sentencepiece_spec_fini(fsdp_sentencepiece_spec *spec)
{
    fsdp_free(spec->pieces);
    *spec = (fsdp_sentencepiece_spec){0};
}

/* ---- models ---- */

static fsdp_status make_vocabulary(const fsdp_sentencepiece_spec *spec, fsdp_vocabulary **out)
{
    fsdp_vocabulary *vocabulary = NULL;
    fsdp_status status = fsdp_vocabulary_create(&vocabulary);
    for (size_t i = 0; i < spec->count && status == FSDP_OK; i++) {
        const fsdp_sentencepiece_entry *piece = &spec->pieces[i];
        int32_t other = fsdp_vocabulary_find(vocabulary, piece->text, piece->length);
        if (other >= 0)
            status =
                fsdp_error(FSDP_ERR_FORMAT, "the pieces %d and %zu are both \"%.*s\"", (int)other,
                           i, piece->length > 80 ? 80 : (int)piece->length, piece->text);
        else
            status = fsdp_vocabulary_add(vocabulary, piece->text, piece->length, (int64_t)i);
    }
    if (status == FSDP_OK)
        *out = vocabulary;
    else
        fsdp_vocabulary_destroy(vocabulary);
    return status;
}

static fsdp_status make_unigram(const fsdp_sentencepiece_spec *spec, fsdp_vocabulary *vocabulary,
                                fsdp_token_model **out)
{
    double *scores = fsdp_calloc(spec->count, sizeof *scores);
    if (!scores) {
        fsdp_vocabulary_destroy(vocabulary);
        return FSDP_ERR_NOMEM;
    }
    for (size_t i = 0; i < spec->count; i++)
        scores[i] = (double)spec->pieces[i].score;
    const fsdp_unigram_options options = {spec->unk_id, spec->byte_fallback};
    fsdp_status status = fsdp_unigram_create(vocabulary, scores, &options, out);
    fsdp_free(scores);
    return status;
}

/* A growing list of merges. */
typedef struct merge_list {
    fsdp_bpe_merge *items;
    size_t len, cap;
} merge_list;

static int32_t find_normal(const fsdp_sentencepiece_spec *spec, const fsdp_vocabulary *vocabulary,
                           const char *text, size_t length)
{
    int32_t id = fsdp_vocabulary_find(vocabulary, text, length);
    return id >= 0 && spec->pieces[id].type == FSDP_PIECE_NORMAL ? id : -1;
}

/* Find each way to divide the piece `id`, which is a normal piece, into two normal pieces. For each
 * way, add a merge of the two pieces into the piece `id`. */
static fsdp_status add_merges_of(merge_list *list, const fsdp_sentencepiece_spec *spec,
                                 const fsdp_vocabulary *vocabulary, int32_t id, uint32_t rank)
{
    const fsdp_sentencepiece_entry *piece = &spec->pieces[id];
    if (piece->length > BPE_PIECE_BYTES_MAX)
        return fsdp_error(FSDP_ERR_FORMAT, "piece %d has %zu bytes; the maximum is %d", (int)id,
                          piece->length, BPE_PIECE_BYTES_MAX);
    for (size_t i = 1; i < piece->length; i++) {
        if (((unsigned char)piece->text[i] & 0xC0) == 0x80)
            continue;
        int32_t left = find_normal(spec, vocabulary, piece->text, i), right = -1;
        if (left >= 0)
            right = find_normal(spec, vocabulary, piece->text + i, piece->length - i);
        if (right < 0)
            continue;
        if (!FSDP_GROW(list->items, list->cap, list->len + 1))
            return FSDP_ERR_NOMEM;
        list->items[list->len++] = (fsdp_bpe_merge){left, right, id, rank};
    }
    return FSDP_OK;
}

/* Compare two pieces for qsort(): descending by score, and ascending by id if the scores are
 * equal. */
static int compare_scores(const void *a, const void *b)
{
    const fsdp_sentencepiece_entry *x = *(const fsdp_sentencepiece_entry *const *)a;
    const fsdp_sentencepiece_entry *y = *(const fsdp_sentencepiece_entry *const *)b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return (x > y) - (x < y);
}

/* Add the merges of all normal pieces to `list`. by_score is scratch memory for pointers to all
 * pieces. */
static fsdp_status find_merges(const fsdp_sentencepiece_spec *spec,
                               const fsdp_vocabulary *vocabulary,
                               const fsdp_sentencepiece_entry **by_score, merge_list *list)
{
    for (size_t i = 0; i < spec->count; i++)
        by_score[i] = &spec->pieces[i];
    qsort(by_score, spec->count, sizeof *by_score, compare_scores);
    uint32_t rank = 0;
    for (size_t i = 0; i < spec->count; i++) {
        const fsdp_sentencepiece_entry *piece = by_score[i];
        if (i && piece->score != by_score[i - 1]->score)
            rank = (uint32_t)i;
        if (piece->type == FSDP_PIECE_NORMAL)
            FSDP_TRY(add_merges_of(list, spec, vocabulary, (int32_t)(piece - spec->pieces), rank));
    }
    return FSDP_OK;
}

static fsdp_status make_bpe(const fsdp_sentencepiece_spec *spec, fsdp_vocabulary *vocabulary,
                            fsdp_token_model **out)
{
    merge_list list = {0};
    const fsdp_sentencepiece_entry **by_score = fsdp_calloc(spec->count, sizeof *by_score);
    fsdp_status status = by_score ? find_merges(spec, vocabulary, by_score, &list) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK) {
        size_t length;
        const fsdp_bpe_options options = {
            .unk_token = fsdp_vocabulary_text(vocabulary, spec->unk_id, &length),
            .fuse_unk = true,
            .byte_fallback = spec->byte_fallback};
        status = fsdp_bpe_create(vocabulary, list.items, list.len, &options, out);
    } else {
        fsdp_vocabulary_destroy(vocabulary);
    }
    fsdp_free(list.items);
    fsdp_free(by_score);
    return status;
}

fsdp_status fsdp_sentencepiece_model_create(const fsdp_sentencepiece_spec *spec,
                                            fsdp_token_model **out)
{
    fsdp_vocabulary *vocabulary = NULL;
    FSDP_TRY(make_vocabulary(spec, &vocabulary));
    return spec->is_bpe ? make_bpe(spec, vocabulary, out) : make_unigram(spec, vocabulary, out);
}
