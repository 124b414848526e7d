word_splitter.o: src/text/word_splitter.c src/text/word_splitter.h \
 src/text/char_class.h include/fsdp/base.h src/base/assert.h \
 src/text/utf8.h
src/text/word_splitter.h:
src/text/char_class.h:
include/fsdp/base.h:
src/base/assert.h:
src/text/utf8.h:
