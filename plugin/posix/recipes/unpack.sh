# $2 is the upload's token.
need cat dd mkdir rm stat tail tar
make_directory "$p"
mask=$(umask)
receive "$p/.sandboxctl-$2" "$2"
umask "$mask"
# On stdin: GNU tar would take a name with a colon for another host's.
tar -x -o -p -f - -C "$p/" <"$t"
