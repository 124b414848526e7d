/* Pickles as data: values of every kind from each protocol, and programs that are refused. */
#include <stdio.h>
#include <string.h>

#include <fsdp/ckpt.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/torchfile/pickle_reader.h"
#include "src/torchfile/torch_archive.h"
#include "src/torchfile/torch_names.h"
#include "tests/test.h"
#include "tests/torchfile/torch_fixture.h"

static void check_numbers(fsdp_test *t, const fsdp_pickle_value *root)
{
    static const struct {
        const char *key;
        int64_t value;
    } ints[] = {{"int", -5}, {"word", 65535}, {"int40", 1LL << 40}, {"min", INT64_MIN}};
    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++) {
        const fsdp_pickle_value *v = fsdp_pickle_find(root, ints[i].key);
        ASSERT(fsdp_pickle_is(v, FSDP_PICKLE_INT));
        ASSERT_INT(v->integer, ints[i].value);
    }
    const fsdp_pickle_value *v = fsdp_pickle_find(root, "big");
    ASSERT(fsdp_pickle_is(v, FSDP_PICKLE_BIG_INT));
    ASSERT(v->text.bytes == 9 && memcmp(v->text.data, "\0\0\0\0\0\0\0\0\1", 9) == 0);
    v = fsdp_pickle_find(root, "float");
    ASSERT(fsdp_pickle_is(v, FSDP_PICKLE_FLOAT) && v->number == 0.1);
    v = fsdp_pickle_find(root, "true");
    ASSERT(fsdp_pickle_is(v, FSDP_PICKLE_BOOL) && v->boolean);
    v = fsdp_pickle_find(root, "false");
    ASSERT(fsdp_pickle_is(v, FSDP_PICKLE_BOOL) && !v->boolean);
    ASSERT(fsdp_pickle_is(fsdp_pickle_find(root, "none"), FSDP_PICKLE_NONE));
}

static void check_texts(fsdp_test *t, const fsdp_pickle_value *root)
{
    char text[64];
    ASSERT_STR(fsdp_pickle_text(fsdp_pickle_find(root, "str")), "caf\xc3\xa9");
    const fsdp_pickle_value *v = fsdp_pickle_find(root, "bytes");
    ASSERT(fsdp_pickle_is(v, FSDP_PICKLE_BYTES) && !fsdp_pickle_text(v));
    ASSERT_INT(v->text.bytes, 256);
    for (int i = 0; i < 256; i++)
        ASSERT_INT((unsigned char)v->text.data[i], i);
    v = fsdp_pickle_find(root, "no_bytes");
    ASSERT(fsdp_pickle_is(v, FSDP_PICKLE_BYTES) && v->text.bytes == 0);
    v = fsdp_pickle_find(root, "device");
    ASSERT(fsdp_pickle_is_call(v, "device"));
    ASSERT_STR(fsdp_pickle_text(fsdp_pickle_at(v, 0)), "cuda");
    ASSERT_STR(fsdp_pickle_describe(v, text, sizeof text), "torch.device(...)");
    v = fsdp_pickle_find(root, "dtype");
    ASSERT_STR(fsdp_pickle_describe(v, text, sizeof text), "torch.bfloat16");
    ASSERT_STR(fsdp_torch_dtype(v)->name, "BF16");
}

static void check_containers(fsdp_test *t, const fsdp_pickle_value *root)
{
    const fsdp_pickle_value *v = fsdp_pickle_find(root, "tuple");
    ASSERT(fsdp_pickle_is(v, FSDP_PICKLE_TUPLE) && v->list.n == 4 && v->depth == 1);
    ASSERT_INT(fsdp_pickle_at(v, 3)->integer, 4);
    ASSERT(!fsdp_pickle_at(v, 4));
    v = fsdp_pickle_at(fsdp_pickle_find(root, "list"), 1);
    ASSERT(fsdp_pickle_is(v, FSDP_PICKLE_LIST) && v->list.n == 2);
    ASSERT(fsdp_pickle_is(fsdp_pickle_at(v, 1), FSDP_PICKLE_TUPLE));
    v = fsdp_pickle_find(root, "dict");
    ASSERT(fsdp_pickle_is(v, FSDP_PICKLE_DICT) && v->list.n == 6);
    ASSERT(fsdp_pickle_is(v->list.items[2], FSDP_PICKLE_NONE));
    ASSERT(fsdp_pickle_is(v->list.items[4], FSDP_PICKLE_TUPLE));
    v = fsdp_pickle_find(root, "set");
    ASSERT(fsdp_pickle_is(v, FSDP_PICKLE_SET) && v->list.n == 1);
    v = fsdp_pickle_find(root, "size");
    ASSERT(fsdp_pickle_is(v, FSDP_PICKLE_TUPLE) && fsdp_pickle_at(v, 1)->integer == 3);
    ASSERT(fsdp_torch_is_tensor(fsdp_pickle_find(root, "tensor")));
    ASSERT(!fsdp_pickle_find(root, "absent") && !fsdp_pickle_find(v, "size"));
}

TEST(values_are_the_same_from_each_protocol)
{
    for (int protocol = 2; protocol <= 5; protocol++) {
        char name[32];
        fsdp_torch_archive *archive;
        snprintf(name, sizeof name, "values_%d.pt", protocol);
        torch_bytes file = torch_fixture_bytes(t, name);
        CHECK_HERE();
        ASSERT_OK(fsdp_torch_archive_create("f", file.data, file.bytes, &archive));
        const fsdp_pickle_value *root = fsdp_torch_archive_root(archive);
        check_numbers(t, root);
        check_texts(t, root);
        check_containers(t, root);
        fsdp_torch_archive_destroy(archive);
        fsdp_free(file.data);
        CHECK_HERE();
    }
}

/* ---- programs written by hand ---------------------------------------------------------------- */

static fsdp_status read_pickle(const char *bytes, size_t n)
{
    fsdp_pickle *pickle;
    fsdp_status status = fsdp_pickle_create("f", bytes, n, &fsdp_torch_names, &pickle);
    if (status == FSDP_OK)
        fsdp_pickle_destroy(pickle);
    return status;
}

#define PICKLE(text) text, sizeof(text) - 1
#define ORDERED_DICT "ccollections\nOrderedDict\n"
#define DEVICE "ctorch\ndevice\n"
#define REBUILD "ctorch._tensor\n_rebuild_from_type_v2\n("
#define FROM_TYPE "ctorch._utils\n_rebuild_tensor_v2\nctorch\nTensor\n"

TEST(malformed_and_hostile_pickles_are_refused)
{
    static const struct {
        const char *bytes;
        size_t n;
        fsdp_status status;
        const char *error;
    } cases[] = {
        {PICKLE(""), FSDP_ERR_FORMAT, "f: byte 0 of the pickle: it ends without STOP"},
        {PICKLE("N"), FSDP_ERR_FORMAT, "byte 1 of the pickle: it ends without STOP"},
        {PICKLE("."), FSDP_ERR_FORMAT, "does not end with one value"},
        {PICKLE("NN."), FSDP_ERR_FORMAT, "does not end with one value"},
        {PICKLE("N(."), FSDP_ERR_FORMAT, "does not end with one value"},
        {PICKLE("\x80\x06N."), FSDP_ERR_FORMAT, "its protocol is newer than 5"},
        {PICKLE("\x95\1\0\0\0\0\0\0"), FSDP_ERR_FORMAT, "ends within an opcode's argument"},
        {PICKLE("K"), FSDP_ERR_FORMAT, "ends within an opcode's argument"},
        {PICKLE("X\377\377\377\377a."), FSDP_ERR_FORMAT, "ends within an opcode's argument"},
        {PICKLE("\x8d\377\377\377\377\377\377\377\377a."), FSDP_ERR_FORMAT, "ends within an opco"},
        {PICKLE("\x8b\377\377\377\377a."), FSDP_ERR_FORMAT, "ends within an opcode's argument"},
        {PICKLE("I1\n."), FSDP_ERR_UNSUPPORTED, "byte 0 of the pickle: unknown opcode 0x49"},
        {PICKLE("0."), FSDP_ERR_FORMAT, "too few values on the stack"},
        {PICKLE("N(0N."), FSDP_ERR_FORMAT, "too few values on the stack"},
        {PICKLE("1."), FSDP_ERR_FORMAT, "there is no mark"},
        {PICKLE("N\x91."), FSDP_ERR_FORMAT, "there is no mark"},
        {PICKLE("cos\nsystem\n)N\x92."), FSDP_ERR_FORMAT, "arguments by name that are not a dict"},
        {PICKLE(DEVICE ")}NNs\x92."), FSDP_ERR_FORMAT, "a call with arguments by name"},
        {PICKLE("cos\nsystem\nNR."), FSDP_ERR_FORMAT, "without a tuple of arguments"},
        {PICKLE("\x85."), FSDP_ERR_FORMAT, "too few values on the stack"},
        {PICKLE("N(\x85."), FSDP_ERR_FORMAT, "too few values on the stack"},
        {PICKLE("](a."), FSDP_ERR_FORMAT, "too few values on the stack"},
        {PICKLE("(Ne."), FSDP_ERR_FORMAT, "too few values on the stack"},
        {PICKLE("t."), FSDP_ERR_FORMAT, "there is no mark"},
        {PICKLE("}Na."), FSDP_ERR_FORMAT, "appended to a value that is not a list"},
        {PICKLE("](N\x90."), FSDP_ERR_FORMAT, "added to a value that is not a set"},
        {PICKLE("\x8fNa."), FSDP_ERR_FORMAT, "appended to a value that is not a list"},
        {PICKLE("c__builtin__\nset\nN\x85R."), FSDP_ERR_FORMAT,
         "a set is made of a value that is not a list"},
        {PICKLE("c__builtin__\nset\n]]\x86R."), FSDP_ERR_FORMAT,
         "a set is made of a value that is not a list"},
        {PICKLE("\x8fq\0(h\0\x90."), FSDP_ERR_FORMAT, "that another one already holds"},
        {PICKLE("]NNs."), FSDP_ERR_FORMAT, "set in a value that is not a dict"},
        {PICKLE("}(NNNu."), FSDP_ERR_FORMAT, "a key without a value"},
        {PICKLE("h\0."), FSDP_ERR_FORMAT, "nothing has this number in the memo"},
        {PICKLE("Nq\1h\0."), FSDP_ERR_FORMAT, "nothing has this number in the memo"},
        {PICKLE("Nr\377\377\377\377."), FSDP_ERR_FORMAT, "a number in the memo is too large"},
        {PICKLE("q\0."), FSDP_ERR_FORMAT, "too few values on the stack"},
        {PICKLE("ctorch"), FSDP_ERR_FORMAT, "it ends within a name"},
        {PICKLE("ctorch\nfloat32"), FSDP_ERR_FORMAT, "it ends within a name"},
        {PICKLE("NN\x93."), FSDP_ERR_FORMAT, "a name that is not a text"},
        {PICKLE("ctorch\nfloat32\n)R."), FSDP_ERR_FORMAT,
         "a call of a value that is not a function"},
        {PICKLE("N)R."), FSDP_ERR_FORMAT, "a call of a value that is not a function"},
        {PICKLE(DEVICE "]R."), FSDP_ERR_FORMAT, "without a tuple of arguments"},
        {PICKLE(ORDERED_DICT "N\x85R."), FSDP_ERR_FORMAT, "a dict is made of arguments"},
        {PICKLE("ctorch\nSize\n)R."), FSDP_ERR_FORMAT, "a call without arguments"},
        {PICKLE("c_codecs\nencode\nN\x85R."), FSDP_ERR_FORMAT,
         "bytes are made of a value that is not a text"},
        {PICKLE("c_codecs\nencode\nX\2\0\0\0\xc4\x80\x85R."), FSDP_ERR_FORMAT, "is not Latin-1"},
        {PICKLE("c_codecs\nencode\nX\1\0\0\0\xc3\x85R."), FSDP_ERR_FORMAT, "is not Latin-1"},
        {PICKLE("N}b."), FSDP_ERR_FORMAT, "a state for what has none"},
        {PICKLE(DEVICE ")R}b}b."), FSDP_ERR_FORMAT, "a state for what has none, or has one"},
        {PICKLE(REBUILD "tR."), FSDP_ERR_FORMAT, "that is not made by a function"},
        {PICKLE(REBUILD "ctorch\nfloat32\nctorch\nTensor\n)}tR."), FSDP_ERR_FORMAT,
         "that is not made by a function"},
        {PICKLE(REBUILD DEVICE "ctorch\nfloat32\n)}tR."), FSDP_ERR_FORMAT,
         "that is not made by a function"},
        {PICKLE(REBUILD FROM_TYPE "]}tR."), FSDP_ERR_FORMAT, "that is not made by a function"},
        {PICKLE(REBUILD FROM_TYPE ")NtR."), FSDP_ERR_FORMAT, "attributes that are not a dict"},
        {PICKLE(REBUILD FROM_TYPE ")}N" DEVICE ")RstR."), FSDP_ERR_UNSUPPORTED,
         "f: byte 106 of the pickle: a tensor has an attribute that is not a plain value"},
        /* Values that would hold themselves. */
        {PICKLE("]q\0h\0a."), FSDP_ERR_FORMAT, "that another one already holds"},
        {PICKLE("]q\0]q\1h\0ah\0h\1a."), FSDP_ERR_FORMAT, "that another one already holds"},
        {PICKLE("]q\0h\0\x85q\1h\0h\1a."), FSDP_ERR_FORMAT, "that another one already holds"},
        {PICKLE("}q\0Nh\0s."), FSDP_ERR_FORMAT, "that another one already holds"},
        {PICKLE(DEVICE ")R\x94h\0b."), FSDP_ERR_FORMAT, "that another one already holds"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fsdp_status status = read_pickle(cases[i].bytes, cases[i].n);
        if (status != cases[i].status || !strstr(fsdp_last_error(), cases[i].error))
            FAIL("case %zu: %s: %s: %s", i, cases[i].error, fsdp_status_name(status),
                 status ? fsdp_last_error() : "");
    }
}

/* Only the name is read of names that are not in the list. */
TEST(objects_of_unknown_classes_are_opaque)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *described;
    } cases[] = {
        {PICKLE("cos\nsystem\nX\2\0\0\0ls\x85R."), "an object of os.system"},
        {PICKLE("X\2\0\0\0osX\6\0\0\0system\x93."), "an object of os.system"},
        {PICKLE("ctorch\nfloat3\n."), "an object of torch.float3"},
        {PICKLE("ctorch.x\nfloat32\n."), "an object of torch.x.float32"},
        /* Namespace: NEWOBJ, then a state that contains the object. */
        {PICKLE("cargparse\nNamespace\n)\x81q\0}(X\4\0\0\0selfh\0ub."),
         "an object of argparse.Namespace"},
        /* A dict and a list of a class of their own. */
        {PICKLE("cm\nD\n)\x81(X\1\0\0\0aNu."), "an object of m.D"},
        {PICKLE("cm\nL\n)\x81NaN(NNe."), NULL},
        {PICKLE("cm\nL\n)\x81Na(NNe."), "an object of m.L"},
        {PICKLE("cm\nS\n)\x81(NN\x90."), "an object of m.S"},
        /* The result of an unknown call may be called, and changed after another value holds it. */
        {PICKLE("cfunctools\npartial\nN\x85R)R."), "an object of functools.partial"},
        {PICKLE("cm\nC\n)}X\1\0\0\0aNs\x92."), "an object of m.C"},
        {PICKLE("(NN\x91."), "an object of builtins.frozenset"},
        {PICKLE("(N1cm\nC\n0cm\nB\n."), "an object of m.B"},
        /* A tensor of an unknown class is not read as a plain one. */
        {PICKLE(REBUILD "ctorch._utils\n_rebuild_tensor_v2\ncm\nSub\n)}tR."), "an object of m.Sub"},
        {PICKLE(REBUILD "cm\nmake\nctorch\nTensor\n)}tR."), "an object of m.make"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fsdp_pickle *pickle;
        char text[128];
        fsdp_status status =
            fsdp_pickle_create("f", cases[i].bytes, cases[i].n, &fsdp_torch_names, &pickle);
        if (!cases[i].described) {
            ASSERT_INT(status, FSDP_ERR_FORMAT);
            continue;
        }
        if (status != FSDP_OK)
            FAIL("case %zu: %s", i, fsdp_last_error());
        const fsdp_pickle_value *root = fsdp_pickle_root(pickle);
        ASSERT(fsdp_pickle_is(root, FSDP_PICKLE_OPAQUE) && root->opaque && root->depth == 0);
        ASSERT_STR(fsdp_pickle_describe(root, text, sizeof text), cases[i].described);
        ASSERT(!fsdp_torch_is_tensor(root));
        fsdp_pickle_destroy(pickle);
    }
}

/* {"lr": 1, "args": [(numpy's scalar,)]}: every container around the scalar is marked. */
TEST(what_holds_an_opaque_value_says_so)
{
    static const char text[] = "}(X\2\0\0\0lrK\1X\4\0\0\0args](cnumpy\nscalar\n)R\205eu.";
    fsdp_pickle *pickle;
    ASSERT_OK(fsdp_pickle_create("f", text, sizeof text - 1, &fsdp_torch_names, &pickle));
    const fsdp_pickle_value *root = fsdp_pickle_root(pickle);
    ASSERT(root->opaque && !fsdp_pickle_find(root, "lr")->opaque);
    ASSERT(fsdp_pickle_find(root, "args")->opaque);
    ASSERT_STR(fsdp_pickle_find_opaque(root)->name->name, "scalar");
    ASSERT(!fsdp_pickle_find_opaque(fsdp_pickle_find(root, "lr")));
    ASSERT(!fsdp_pickle_find_opaque(NULL));
    fsdp_pickle_destroy(pickle);
}

TEST(depth_is_bounded)
{
    char text[2 * FSDP_PICKLE_MAX_DEPTH];
    memset(text, '\x85', sizeof text); /* TUPLE1 of TUPLE1 ... of None */
    text[0] = 'N';
    text[FSDP_PICKLE_MAX_DEPTH + 1] = '.';
    ASSERT_OK(read_pickle(text, FSDP_PICKLE_MAX_DEPTH + 2));
    text[FSDP_PICKLE_MAX_DEPTH + 1] = '\x85';
    text[FSDP_PICKLE_MAX_DEPTH + 2] = '.';
    ASSERT_ERROR(read_pickle(text, FSDP_PICKLE_MAX_DEPTH + 3), FSDP_ERR_FORMAT,
                 "nested too deeply");
}

/* One text is encoded repeatedly: each time, five bytes of pickle would need as much memory as the
 * text. */
TEST(memory_is_bounded_by_the_pickle)
{
    enum {
        TEXT = 20000,
        AGAIN = 2000
    };
    static const char head[] = "c_codecs\nencode\nq\0X\x20\x4e\0\0";
    size_t n = sizeof head - 1;
    char *text = fsdp_calloc(n + TEXT + 16 + 8 * AGAIN, 1);
    ASSERT(text != NULL);
    memcpy(text, head, n);
    memset(text + n, 'a', TEXT);
    n += TEXT;
    memcpy(text + n, "\x85q\1R", 4);
    n += 4;
    for (int i = 0; i < AGAIN; i++, n += 5)
        memcpy(text + n, "h\0h\1R", 5);
    text[n++] = '.';
    fsdp_status status = read_pickle(text, n);
    fsdp_free(text);
    ASSERT_ERROR(status, FSDP_ERR_FORMAT, "need more memory than a pickle of this size");
}

TEST(running_out_of_memory_is_an_error)
{
    static const char text[] = "}(X\1\0\0\0a](NNNNNNNNNNe\x94h\0K\5\x85u.";
    for (long n = 1; n < 100; n++) {
        fsdp_alloc_fail_at(n);
        fsdp_status status = read_pickle(text, sizeof text - 1);
        fsdp_alloc_fail_at(0);
        if (status == FSDP_OK) {
            ASSERT(n > 4);
            return;
        }
        ASSERT_INT(status, FSDP_ERR_NOMEM);
    }
    FAIL("it never succeeds");
}
