/* T5's rules around SentencePiece, as the fast T5Tokenizer of transformers applies them: special
 * tokens are cut out of the raw text first, each part between them is encoded as a text of its own,
 * </s> is appended. libsentencepiece normalises and finds the words; words of more than one piece
 * are cut anew by unigram.c, which says why. */
#include <fsdp/text.h>

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/base/str.h"
#include "src/text/sentencepiece.h"
#include "src/text/unigram.h"
#include "src/text/utf8.h"

enum {
    EXTRA_IDS = 100,                    /* sentinels of T5 */
    EXTRA_IDS_MAX = 1000000,            /* keeps ids far from the end of int32 */
    MODEL_BYTES_MAX = 256 * 1024 * 1024 /* the largest known one has 17 MB */
};

struct fsdp_tokenizer {
    char *path; /* of the model file */
    fsdp_sentencepiece *sp;
    fsdp_unigram *unigram;
    int32_t pieces, vocab_size; /* sentinels lie in [pieces, vocab_size) */
    int32_t pad_id, eos_id, unk_id;
};

fsdp_status fsdp_token_list_set(fsdp_token_list *list, const int32_t *ids, size_t count)
{
    if (!FSDP_GROW(list->ids, list->cap, count))
        return FSDP_ERR_NOMEM;
    if (count)
        memcpy(list->ids, ids, count * sizeof *ids);
    list->len = count;
    return FSDP_OK;
}

void fsdp_token_list_fini(fsdp_token_list *list)
{
    fsdp_free(list->ids);
    *list = (fsdp_token_list){0};
}

void fsdp_text_free(char *text)
{
    fsdp_free(text);
}

/* ---- opening ---- */

/* `path` itself if it is a file, else the spiece.model in that folder; owned by the caller. */
static fsdp_status find_model(const char *path, char **model)
{
    if (!fsdp_path_is_directory(path)) {
        size_t length = strlen(path);
        if (length >= 5 && strcmp(path + length - 5, ".json") == 0)
            return fsdp_error(FSDP_ERR_UNSUPPORTED,
                              "tokenizer %s: only SentencePiece models are read; give the "
                              "spiece.model of the same model",
                              path);
        *model = fsdp_strdup(path);
        return *model ? FSDP_OK : FSDP_ERR_NOMEM;
    }
    char *candidate = fsdp_path_join(path, "spiece.model");
    char *json = fsdp_path_join(path, "tokenizer.json");
    fsdp_status status = FSDP_OK;
    if (!candidate || !json) {
        status = FSDP_ERR_NOMEM;
    } else if (fsdp_path_is_file(candidate)) {
        *model = candidate;
        candidate = NULL;
    } else if (fsdp_path_is_file(json)) {
        status = fsdp_error(FSDP_ERR_UNSUPPORTED,
                            "%s holds tokenizer.json but no spiece.model; copy spiece.model "
                            "(792 KB, the same for every T5) into it",
                            path);
    } else {
        status = fsdp_error(FSDP_ERR_NOT_FOUND, "%s holds no spiece.model", path);
    }
    fsdp_free(candidate);
    fsdp_free(json);
    return status;
}

/* How many sentinels there are: extra_ids of the tokenizer_config.json beside the model (mT5 has
 * none), else T5's hundred. */
static fsdp_status read_extra_ids(const char *model_path, int64_t *extra_ids)
{
    char *folder = fsdp_path_parent(model_path);
    char *config_path = folder ? fsdp_path_join(folder, "tokenizer_config.json") : NULL;
    fsdp_json *config = NULL;
    fsdp_status status = config_path ? FSDP_OK : FSDP_ERR_NOMEM;
    *extra_ids = EXTRA_IDS;
    if (status == FSDP_OK && fsdp_path_is_file(config_path)) {
        status = fsdp_json_read(config_path, &config);
        if (status == FSDP_OK)
            status = fsdp_json_opt_i64(fsdp_json_root(config), "extra_ids", 0, EXTRA_IDS_MAX,
                                       EXTRA_IDS, extra_ids);
    }
    fsdp_json_destroy(config);
    fsdp_free(config_path);
    fsdp_free(folder);
    return status;
}

/* ---- the model's type: the library loads every type alike and does not tell which it is ---- */

/* Protocol buffers: a varint, little end first; false where the bytes end. */
static bool read_varint(const unsigned char **p, const unsigned char *end, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; *p < end && shift < 64; shift += 7) {
        unsigned char byte = *(*p)++;
        *value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

typedef struct field {
    uint64_t number, value;       /* value: of a varint, else 0 */
    const unsigned char *p, *end; /* content of a length-delimited one, else NULL */
} field;

static bool read_field(const unsigned char **p, const unsigned char *end, field *out)
{
    uint64_t key, size;
    if (!read_varint(p, end, &key))
        return false;
    *out = (field){.number = key >> 3};
    switch (key & 7) {
    case 0:
        return read_varint(p, end, &out->value);
    case 1:
        size = 8;
        break;
    case 2:
        if (!read_varint(p, end, &size))
            return false;
        out->p = *p;
        break;
    case 5:
        size = 4;
        break;
    default:
        return false;
    }
    if (size > (uint64_t)(end - *p))
        return false;
    *p += size;
    out->end = *p;
    return true;
}

/* FSDP_ERR_UNSUPPORTED unless it is a unigram model: ModelProto.trainer_spec (2).model_type (3).
 * Malformed bytes are left to the library to report. */
static fsdp_status check_model_type(const unsigned char *p, size_t bytes)
{
    enum {
        TRAINER_SPEC = 2,
        MODEL_TYPE = 3,
        UNIGRAM = 1
    };
    static const char *const types[] = {"", "unigram", "BPE", "word", "character"};
    const unsigned char *end = p + bytes;
    uint64_t type = UNIGRAM;
    field outer, inner;
    if (bytes == 0)
        return fsdp_error(FSDP_ERR_FORMAT, "the file is empty");
    while (read_field(&p, end, &outer)) {
        if (outer.number != TRAINER_SPEC || !outer.p)
            continue;
        while (read_field(&outer.p, outer.end, &inner))
            if (inner.number == MODEL_TYPE)
                type = inner.value;
    }
    if (type == UNIGRAM)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_UNSUPPORTED, "a SentencePiece model of type %s; T5's are unigram",
                      type > UNIGRAM && type < sizeof types / sizeof *types ? types[type] : "?");
}

static fsdp_status load(fsdp_tokenizer *tokenizer)
{
    char *bytes = NULL;
    size_t count = 0;
    int64_t extra_ids = 0;
    FSDP_TRY(read_extra_ids(tokenizer->path, &extra_ids));
    FSDP_TRY(fsdp_file_read(tokenizer->path, MODEL_BYTES_MAX, &bytes, &count));
    fsdp_status status = check_model_type((const unsigned char *)bytes, count);
    if (status == FSDP_OK)
        status = fsdp_sentencepiece_load(bytes, count, &tokenizer->sp);
    fsdp_free(bytes);
    if (status != FSDP_OK) {
        fsdp_error_context(status, "%s", tokenizer->path);
        return status;
    }
    tokenizer->pieces = fsdp_sentencepiece_size(tokenizer->sp);
    tokenizer->vocab_size = tokenizer->pieces + (int32_t)extra_ids;
    tokenizer->pad_id = fsdp_sentencepiece_pad_id(tokenizer->sp);
    tokenizer->eos_id = fsdp_sentencepiece_eos_id(tokenizer->sp);
    tokenizer->unk_id = fsdp_sentencepiece_unk_id(tokenizer->sp);
    if (tokenizer->eos_id < 0 || tokenizer->unk_id < 0)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: the model has no %s piece, so it is not T5's",
                          tokenizer->path, tokenizer->eos_id < 0 ? "</s>" : "<unk>");
    return fsdp_unigram_create(tokenizer->sp, &tokenizer->unigram);
}

fsdp_status fsdp_tokenizer_open(const char *path, fsdp_tokenizer **out)
{
    fsdp_tokenizer *tokenizer = fsdp_calloc(1, sizeof *tokenizer);
    if (!tokenizer)
        return FSDP_ERR_NOMEM;
    fsdp_status status = find_model(path, &tokenizer->path);
    if (status == FSDP_OK)
        status = load(tokenizer);
    if (status != FSDP_OK) {
        fsdp_tokenizer_close(tokenizer);
        return status;
    }
    *out = tokenizer;
    return FSDP_OK;
}

void fsdp_tokenizer_close(fsdp_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    fsdp_unigram_destroy(tokenizer->unigram);
    fsdp_sentencepiece_destroy(tokenizer->sp);
    fsdp_free(tokenizer->path);
    fsdp_free(tokenizer);
}

/* ---- special tokens ---- */

/* Does `name` stand at text? Its length, or 0. */
static size_t match(const char *text, size_t left, const char *name)
{
    size_t length = strlen(name);
    return left >= length && memcmp(text, name, length) == 0 ? length : 0;
}

/* "<extra_id_0>" and on, without leading zeros: the length, or 0. */
static size_t match_extra_id(const char *text, size_t left, int32_t extra_ids, int32_t *number)
{
    size_t digits = match(text, left, "<extra_id_"), i = digits;
    if (!digits)
        return 0;
    int32_t value = 0;
    while (i < left && text[i] >= '0' && text[i] <= '9' && value < extra_ids)
        value = value * 10 + (text[i++] - '0');
    bool leading_zero = i > digits + 1 && text[digits] == '0';
    if (i == digits || leading_zero || i >= left || text[i] != '>' || value >= extra_ids)
        return 0;
    *number = value;
    return i + 1;
}

/* The special token that starts at `text`, which begins with '<': its length, or 0. */
static size_t match_special(const fsdp_tokenizer *tokenizer, const char *text, size_t left,
                            int32_t *id)
{
    size_t length;
    int32_t number;
    if ((length = match(text, left, "</s>"))) {
        *id = tokenizer->eos_id;
    } else if ((length = match(text, left, "<unk>"))) {
        *id = tokenizer->unk_id;
    } else if (tokenizer->pad_id >= 0 && (length = match(text, left, "<pad>"))) {
        *id = tokenizer->pad_id;
    } else if ((length = match_extra_id(text, left, tokenizer->vocab_size - tokenizer->pieces,
                                        &number))) {
        *id = tokenizer->vocab_size - 1 - number;
    }
    return length;
}

static bool is_special(const fsdp_tokenizer *tokenizer, int32_t id)
{
    return id == tokenizer->pad_id || id == tokenizer->eos_id || id == tokenizer->unk_id ||
           id >= tokenizer->pieces;
}

/* ---- encoding ---- */

static fsdp_status append(fsdp_token_list *list, int32_t id)
{
    if (!FSDP_GROW(list->ids, list->cap, list->len + 1))
        return FSDP_ERR_NOMEM;
    list->ids[list->len++] = id;
    return FSDP_OK;
}

/* U+2581, which stands for a space in pieces. */
static const char space_mark[] = "\xE2\x96\x81";

/* The word being collected: pieces up to the next space mark. */
typedef struct word {
    const fsdp_tokenizer *tokenizer;
    fsdp_token_list *list;
    fsdp_str text;
    int pieces;
    int32_t id; /* of the last piece */
} word;

static fsdp_status finish_word(word *w)
{
    fsdp_status status = FSDP_OK;
    if (w->pieces == 1)
        status = append(w->list, w->id);
    else if (w->pieces > 1)
        status = fsdp_unigram_encode(w->tokenizer->unigram, w->text.data, w->text.len, w->list);
    w->text.len = 0;
    w->pieces = 0;
    return status;
}

static fsdp_status add_piece(void *arg, const char *piece, size_t length, int32_t id)
{
    word *w = arg;
    if (match(piece, length, space_mark))
        FSDP_TRY(finish_word(w));
    fsdp_str_append(&w->text, piece, length);
    w->pieces++;
    w->id = id;
    return w->text.failed ? fsdp_error_nomem() : FSDP_OK;
}

/* Text between special tokens. */
static fsdp_status encode_part(word *w, const char *text, size_t length)
{
    if (length == 0)
        return FSDP_OK;
    FSDP_TRY(fsdp_sentencepiece_encode(w->tokenizer->sp, text, length, add_piece, w));
    return finish_word(w);
}

static fsdp_status encode_parts(word *w, const char *text, size_t length, size_t most)
{
    fsdp_token_list *list = w->list;
    size_t start = 0, end = list->len + most;
    for (size_t i = 0; i < length && list->len < end;) {
        int32_t id = 0;
        size_t skip = text[i] == '<' ? match_special(w->tokenizer, text + i, length - i, &id) : 0;
        if (!skip) {
            i++;
            continue;
        }
        FSDP_TRY(encode_part(w, text + start, i - start));
        FSDP_TRY(append(list, id));
        start = i += skip;
    }
    if (list->len < end)
        FSDP_TRY(encode_part(w, text + start, length - start));
    if (list->len > end)
        list->len = end;
    return FSDP_OK;
}

fsdp_status fsdp_tokenizer_encode(const fsdp_tokenizer *tokenizer, const char *text, size_t length,
                                  int max_length, fsdp_token_list *list)
{
    if (max_length < 0)
        return fsdp_error(FSDP_ERR_INVALID, "max_length %d: must be 0 (no limit) or more",
                          max_length);
    size_t valid = fsdp_utf8_valid_length(text, length);
    if (valid < length)
        return fsdp_error(FSDP_ERR_INVALID, "text is not UTF-8: byte 0x%02x at offset %zu",
                          (unsigned)(unsigned char)text[valid], valid);
    size_t before = list->len;
    size_t most = max_length ? (size_t)max_length - 1 : SIZE_MAX - before;
    word w = {.tokenizer = tokenizer, .list = list};
    fsdp_status status = encode_parts(&w, text, length, most);
    fsdp_str_fini(&w.text);
    if (status == FSDP_OK)
        status = append(list, tokenizer->eos_id);
    if (status != FSDP_OK)
        list->len = before;
    return status;
}

/* ---- decoding ---- */

/* A piece with its marks as spaces; those of the first piece are left out. */
static void append_piece(fsdp_str *out, const char *piece, bool first)
{
    const char *mark;
    while ((mark = strstr(piece, space_mark))) {
        fsdp_str_append(out, piece, (size_t)(mark - piece));
        if (!first)
            fsdp_str_append(out, " ", 1);
        piece = mark + sizeof space_mark - 1;
    }
    fsdp_str_append(out, piece, strlen(piece));
}

fsdp_status fsdp_tokenizer_decode(const fsdp_tokenizer *tokenizer, const int32_t *ids, size_t count,
                                  unsigned flags, char **text)
{
    fsdp_str out = {0};
    bool first = true;
    for (size_t i = 0; i < count; i++) {
        int32_t id = ids[i];
        if (id < 0 || id >= tokenizer->vocab_size) {
            if (flags & FSDP_DECODE_SKIP_UNKNOWN)
                continue;
            fsdp_str_fini(&out);
            return fsdp_error(FSDP_ERR_INVALID,
                              "id %d at position %zu is no token: ids are 0 to %d", (int)id, i,
                              (int)tokenizer->vocab_size - 1);
        }
        if ((flags & FSDP_DECODE_SKIP_SPECIAL) && is_special(tokenizer, id))
            continue;
        if (id >= tokenizer->pieces)
            fsdp_str_printf(&out, "<extra_id_%d>", (int)(tokenizer->vocab_size - 1 - id));
        else
            append_piece(&out, fsdp_sentencepiece_piece(tokenizer->sp, id), first);
        first = false;
    }
    char *result = fsdp_str_take(&out);
    if (!result)
        return FSDP_ERR_NOMEM;
    *text = result;
    return FSDP_OK;
}

/* ---- what it is ---- */

int32_t fsdp_tokenizer_vocab_size(const fsdp_tokenizer *tokenizer)
{
    return tokenizer->vocab_size;
}

int32_t fsdp_tokenizer_pad_id(const fsdp_tokenizer *tokenizer)
{
    return tokenizer->pad_id;
}

int32_t fsdp_tokenizer_eos_id(const fsdp_tokenizer *tokenizer)
{
    return tokenizer->eos_id;
}

int32_t fsdp_tokenizer_unk_id(const fsdp_tokenizer *tokenizer)
{
    return tokenizer->unk_id;
}

const char *fsdp_tokenizer_path(const fsdp_tokenizer *tokenizer)
{
    return tokenizer->path;
}
