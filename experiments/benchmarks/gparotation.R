# Rotations by R: stdin lists problems, one line each: file of loadings, file of starts, criterion, normalize, output.
# Without lines the examples of GPArotation are written to the folder that is the only argument.
suppressMessages(library(GPArotation))
folder <- commandArgs(trailingOnly = TRUE)
save_csv <- function(x, name) write.table(format(x, digits = 17), file.path(folder, name), sep = ",",
                                           row.names = FALSE, col.names = FALSE, quote = FALSE)
data("Harman", package = "GPArotation")
data("Thurstone", package = "GPArotation")
data("WansbeekMeijer", package = "GPArotation")
unrotated <- function(covmat, factors) unclass(loadings(factanal(factors = factors, covmat = covmat, rotation = "none")))
examples <- list(Harman8 = Harman8, box20 = box20, box26 = box26, NetherlandsTV = unrotated(NetherlandsTV, 2),
                 ability = unrotated(ability.cov, 2))
for (name in names(examples)) save_csv(unclass(examples[[name]]), paste0(name, ".csv"))
for (line in readLines(file("stdin"))) {
  part <- strsplit(line, " ")[[1]]
  L <- as.matrix(read.csv(file.path(folder, part[1]), header = FALSE))
  start <- as.matrix(read.csv(file.path(folder, part[2]), header = FALSE))
  # eps is the norm of the projected gradient at which it stops; the default, 1e-5, leaves digits
  found <- GPForth(L, Tmat = start, method = part[3], normalize = part[4] == "1", eps = 1e-7, maxit = 1000)
  save_csv(unclass(found$loadings), part[5])
}
cat(R.version.string, as.character(packageVersion("GPArotation")), sep = "\n")
