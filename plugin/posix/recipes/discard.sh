# Removes what the recipe $2 has left of the upload $3.
case $2 in
write)
	resolve
	p=${p%/*}
	;;
esac
rm -f "$p/.sandboxctl-$3"
