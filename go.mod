module github.com/stepvan/stepvan

go 1.26
