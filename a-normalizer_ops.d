normalizer_ops.o: src/text/normalizer_ops.c src/text/normalizer_ops.h \
 src/text/aligned_text.h include/fsdp/base.h src/text/utf8.h \
 src/text/char_class.h src/text/charsmap.h src/text/regex.h \
 src/base/alloc.h src/text/byte_alphabet.h
src/text/normalizer_ops.h:
src/text/aligned_text.h:
include/fsdp/base.h:
src/text/utf8.h:
src/text/char_class.h:
src/text/charsmap.h:
src/text/regex.h:
src/base/alloc.h:
src/text/byte_alphabet.h:
