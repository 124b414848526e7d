normalizer.o: src/text/normalizer.c src/text/normalizer.h src/base/json.h \
 include/fsdp/base.h src/text/aligned_text.h src/text/utf8.h \
 src/text/char_class.h src/base/alloc.h src/text/normalizer_ops.h \
 src/text/charsmap.h src/text/regex.h src/text/token_json.h \
 src/text/unicode.h
src/text/normalizer.h:
src/base/json.h:
include/fsdp/base.h:
src/text/aligned_text.h:
src/text/utf8.h:
src/text/char_class.h:
src/base/alloc.h:
src/text/normalizer_ops.h:
src/text/charsmap.h:
src/text/regex.h:
src/text/token_json.h:
src/text/unicode.h:
